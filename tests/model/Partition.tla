---- MODULE Partition ----
\* One owner after another serves a partition. A transaction carries records that leave, and three facts of the state:
\*   C      every record below it is indexed,
\*   W      the due time and offset up to which records have left,
\*   held   records up to W that wait for their target.
\* An owner is the only writer from its take-over on: Lanes.tla has the steps by which it becomes that.
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS Records, Times, Owners, Epochs, Wrong
VARIABLES log, clock, state, out, early, epoch, owner, away, damaged

Offsets == 1..Records
Leq(a, b) == a[1] < b[1] \/ (a[1] = b[1] /\ a[2] <= b[2])
Key(i) == <<log[i], i>>
Start == [c |-> 0, w |-> <<0, 0>>, held |-> {}]
Dead == [epoch |-> 0, own |-> Start, indexed |-> 0, open |-> FALSE, next |-> Start, batch |-> {}]

Init == /\ log = <<>> /\ clock = 0
        /\ state = Start /\ out = [i \in Offsets |-> 0]
        /\ early = FALSE /\ epoch = 0 /\ owner = [o \in Owners |-> Dead]
        /\ away = FALSE /\ damaged = FALSE

\* -- The world ------------------------------------------------------------------------------------------------
Append_(due) == /\ Len(log) < Records /\ log' = Append(log, due)
                /\ UNCHANGED <<clock, state, out, early, epoch, owner, away, damaged>>
Tick == /\ clock < Times /\ clock' = clock + 1
        /\ UNCHANGED <<log, state, out, early, epoch, owner, away, damaged>>
\* The target goes away or comes back.
Away == /\ away' = ~away
        /\ UNCHANGED <<log, clock, state, out, early, epoch, owner, damaged>>
\* A part of the log cannot be read any more.
Damage == /\ ~damaged /\ damaged' = TRUE
          /\ UNCHANGED <<log, clock, state, out, early, epoch, owner, away>>

\* -- An owner -------------------------------------------------------------------------------------------------
\* Fence all others, then read the state. Fencing settles the transaction of the owner before.
TakenOver == IF Wrong = "heldForgotten" THEN [state EXCEPT !.held = {}] ELSE state
TakeOver(o) == /\ epoch < Epochs /\ epoch' = epoch + 1
               /\ owner' = [owner EXCEPT ![o] =
                              [Dead EXCEPT !.epoch = epoch + 1, !.own = TakenOver, !.indexed = state.c]]
               /\ UNCHANGED <<log, clock, state, out, early, away, damaged>>
Index(o) == /\ owner[o].epoch > 0 /\ ~owner[o].open /\ ~damaged /\ owner[o].indexed < Len(log)
            /\ owner' = [owner EXCEPT ![o].indexed = @ + 1]
            /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>

Late(s) == {i \in (s.own.c + 1)..s.indexed : Leq(Key(i), s.own.w)}
Due(s) == {i \in 1..s.indexed : ~Leq(Key(i), s.own.w) /\ (Wrong = "noClock" \/ log[i] <= clock)}
Prefixes(S) == {P \in SUBSET S : \A i \in P, j \in S : Leq(Key(j), Key(i)) => j \in P}
Last(P, w) == IF P = {} THEN w ELSE Key(CHOOSE i \in P : \A j \in P : Leq(Key(j), Key(i)))
Least(S) == CHOOSE x \in S : \A y \in S : x <= y

\* What a transaction does with the late records and the first due records, P. With the target away, they are held.
\* With the target there, they leave, and the held records with them.
Leaving(s, P) == P \cup (IF Wrong \in {"passesLate", "holdsCBack"} THEN {} ELSE Late(s))
NextC(s) == IF Wrong = "passesDamaged" /\ damaged THEN Len(log)
            ELSE IF Wrong = "holdsCBack" /\ Late(s) # {} THEN Least(Late(s)) - 1 ELSE s.indexed
NextHeld(s, P) == IF away THEN s.own.held \cup (IF Wrong = "heldNowhere" THEN {} ELSE Leaving(s, P))
                  ELSE IF Wrong = "heldStays" THEN s.own.held ELSE {}
Begin(o) == LET s == owner[o] IN
  /\ s.epoch > 0 /\ ~s.open
  /\ \E P \in Prefixes(Due(s)) :
       LET next == [c |-> NextC(s), w |-> Last(P, s.own.w), held |-> NextHeld(s, P)]
           batch == IF away THEN {} ELSE Leaving(s, P) \cup s.own.held
       IN /\ next # s.own \/ batch # {}
          /\ owner' = [owner EXCEPT ![o].open = TRUE, ![o].next = next, ![o].batch = batch]
  /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>

\* -- The end of a transaction -----------------------------------------------------------------------------------
Apply(o) == /\ owner[o].open /\ (owner[o].epoch = epoch \/ Wrong = "notFenced")
            /\ state' = owner[o].next
            /\ out' = [i \in Offsets |-> IF i \in owner[o].batch THEN out[i] + 1 ELSE out[i]]
            /\ early' = (early \/ \E i \in owner[o].batch : log[i] > clock)
            /\ UNCHANGED <<log, clock, epoch, away, damaged>>
Committed(s) == [s EXCEPT !.open = FALSE, !.own = s.next, !.batch = {}]
Commit(o) == Apply(o) /\ owner' = [owner EXCEPT ![o] = Committed(@)]
Abort(o) == /\ owner[o].open
            /\ owner' = [owner EXCEPT ![o] = IF Wrong = "abortIsCommit" THEN Committed(@)
                                             ELSE [@ EXCEPT !.open = FALSE, !.batch = {}]]
            /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>
\* The transaction was committed, and its owner does not hear of it: it has to take the partition over anew.
Unheard(o) == Apply(o) /\ owner' = [owner EXCEPT ![o] = Dead]
Crash(o) == /\ owner[o].epoch > 0 /\ owner' = [owner EXCEPT ![o] = Dead]
            /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>

Next == \/ Away \/ Damage \/ Tick
        \/ \E due \in 1..Times : Append_(due)
        \/ \E o \in Owners : TakeOver(o) \/ Index(o) \/ Begin(o) \/ Commit(o) \/ Abort(o) \/ Unheard(o) \/ Crash(o)

\* -- Guarantees -------------------------------------------------------------------------------------------------
Once == \A i \in Offsets : out[i] <= 1
NotEarly == ~early
\* A record has left, or is held, exactly if the two numbers say so. So no record is lost, and a restart knows them all.
Passed(i) == i <= state.c /\ Leq(Key(i), state.w)
NumbersTell == \A i \in 1..Len(log) : /\ Passed(i) <=> (out[i] >= 1 \/ i \in state.held)
                                      /\ ~(out[i] >= 1 /\ i \in state.held)
\* Owners are alike, so a state counts once for all exchanges of owners.
Alike == Permutations(Owners)
====
