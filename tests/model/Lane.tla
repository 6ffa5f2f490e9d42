---- MODULE Lane ----
\* One owner after another serves the partitions of a lane. One transaction carries the records that leave,
\* and for each partition three facts of the state:
\*   C      every record below it is indexed,
\*   W      the due time and offset up to which records have left,
\*   held   records up to W that wait for their target.
\* A router that serves each partition by itself is a lane of one partition.
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS Partitions, Records, Times, Owners, Epochs, Wrong
VARIABLES log, clock, state, out, early, epoch, owner, away, damaged
vars == <<log, clock, state, out, early, epoch, owner, away, damaged>>

Offsets == 1..Records
Leq(a, b) == a[1] < b[1] \/ (a[1] = b[1] /\ a[2] <= b[2])
Key(q, i) == <<log[q][i], i>>
Start == [c |-> 0, w |-> <<0, 0>>, held |-> {}]
Nothing == [q \in Partitions |-> {}]
Dead == [epoch |-> 0, own |-> [q \in Partitions |-> Start], indexed |-> [q \in Partitions |-> 0],
         open |-> FALSE, next |-> [q \in Partitions |-> Start], batch |-> Nothing]

Init == /\ log = [q \in Partitions |-> <<>>] /\ clock = 0
        /\ state = [q \in Partitions |-> Start]
        /\ out = [q \in Partitions |-> [i \in Offsets |-> 0]]
        /\ early = FALSE /\ epoch = 0 /\ owner = [o \in Owners |-> Dead]
        /\ away = {} /\ damaged = {}

\* -- The world ------------------------------------------------------------------------------------------------
Append_(q, due) == /\ Len(log[q]) < Records /\ log' = [log EXCEPT ![q] = Append(@, due)]
                   /\ UNCHANGED <<clock, state, out, early, epoch, owner, away, damaged>>
Tick == /\ clock < Times /\ clock' = clock + 1
        /\ UNCHANGED <<log, state, out, early, epoch, owner, away, damaged>>
\* The target of a partition's records goes away or comes back.
Away(q) == /\ away' = IF q \in away THEN away \ {q} ELSE away \cup {q}
           /\ UNCHANGED <<log, clock, state, out, early, epoch, owner, damaged>>
\* A part of a partition's log cannot be read any more.
Damage(q) == /\ q \notin damaged /\ damaged' = damaged \cup {q}
             /\ UNCHANGED <<log, clock, state, out, early, epoch, owner, away>>

\* -- An owner -------------------------------------------------------------------------------------------------
\* Fence all others, then read the state. Fencing settles the transaction of the owner before.
TakenOver(q) == IF Wrong = "heldForgotten" THEN [state[q] EXCEPT !.held = {}] ELSE state[q]
TakeOver(o) == /\ epoch < Epochs /\ epoch' = epoch + 1
               /\ owner' = [owner EXCEPT ![o] =
                     [Dead EXCEPT !.epoch = epoch + 1, !.own = [q \in Partitions |-> TakenOver(q)],
                                  !.indexed = [q \in Partitions |-> state[q].c]]]
               /\ UNCHANGED <<log, clock, state, out, early, away, damaged>>
Index(o, q) == /\ owner[o].epoch > 0 /\ ~owner[o].open /\ q \notin damaged
               /\ owner[o].indexed[q] < Len(log[q])
               /\ owner' = [owner EXCEPT ![o].indexed[q] = @ + 1]
               /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>

Indexed(s, q) == 1..s.indexed[q]
Late(s, q) == {i \in (s.own[q].c + 1)..s.indexed[q] : Leq(Key(q, i), s.own[q].w)}
Pending(s, q) == {i \in Indexed(s, q) : ~Leq(Key(q, i), s.own[q].w)}
Due(s, q) == {i \in Pending(s, q) : Wrong = "noClock" \/ log[q][i] <= clock}
Prefixes(S, q) == {P \in SUBSET S : \A i \in P, j \in S : Leq(Key(q, j), Key(q, i)) => j \in P}
Last(P, q, w) == IF P = {} THEN w ELSE Key(q, CHOOSE i \in P : \A j \in P : Leq(Key(q, j), Key(q, i)))
Least(S) == CHOOSE x \in S : \A y \in S : x <= y

\* What a transaction does with the late records and the first due records of a partition, P. With its target away,
\* they are held. With its target there, they leave, and the held records with them.
Leaving(s, q, P) == P \cup (IF Wrong \in {"passesLate", "holdsCBack"} THEN {} ELSE Late(s, q))
NextC(s, q) == IF Wrong = "passesDamaged" /\ q \in damaged THEN Len(log[q])
               ELSE IF Wrong = "holdsCBack" /\ Late(s, q) # {} THEN Least(Late(s, q)) - 1 ELSE s.indexed[q]
NextHeld(s, q, P) == IF q \in away THEN s.own[q].held \cup (IF Wrong = "heldNowhere" THEN {} ELSE Leaving(s, q, P))
                     ELSE IF Wrong = "heldStays" THEN s.own[q].held ELSE {}
Begin(o) == LET s == owner[o] IN
  /\ s.epoch > 0 /\ ~s.open
  /\ \E taken \in [Partitions -> SUBSET Offsets] :
       /\ \A q \in Partitions : taken[q] \in Prefixes(Due(s, q), q)
       /\ LET next == [q \in Partitions |-> [c |-> NextC(s, q), w |-> Last(taken[q], q, s.own[q].w),
                                             held |-> NextHeld(s, q, taken[q])]]
              batch == [q \in Partitions |-> IF q \in away THEN {} ELSE Leaving(s, q, taken[q]) \cup s.own[q].held]
          IN /\ next # s.own \/ batch # Nothing
             /\ owner' = [owner EXCEPT ![o].open = TRUE, ![o].next = next, ![o].batch = batch]
  /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>

\* -- The end of a transaction -----------------------------------------------------------------------------------
First == CHOOSE q \in Partitions : TRUE
\* The partitions whose part of the transaction becomes visible: all or nothing, unless it is torn.
Parts == IF Wrong = "torn" THEN {S \in SUBSET Partitions : First \in S} ELSE {Partitions}
Told(q) == ~(Wrong = "progressOfFirst" /\ q # First)
Applies(o) == owner[o].open /\ (owner[o].epoch = epoch \/ Wrong = "notFenced")
Apply(o) == \E S \in Parts :
            /\ state' = [q \in Partitions |-> IF q \in S /\ Told(q) THEN owner[o].next[q] ELSE state[q]]
            /\ out' = [q \in Partitions |-> [i \in Offsets |->
                         IF q \in S /\ i \in owner[o].batch[q] THEN out[q][i] + 1 ELSE out[q][i]]]
            /\ early' = (early \/ \E q \in Partitions : \E i \in owner[o].batch[q] : log[q][i] > clock)
Committed(s) == [s EXCEPT !.open = FALSE, !.own = s.next, !.batch = Nothing]
Commit(o) == /\ Applies(o) /\ Apply(o) /\ owner' = [owner EXCEPT ![o] = Committed(@)]
             /\ UNCHANGED <<log, clock, epoch, away, damaged>>
Abort(o) == /\ owner[o].open
            /\ owner' = [owner EXCEPT ![o] = IF Wrong = "abortIsCommit" THEN Committed(@)
                                             ELSE [@ EXCEPT !.open = FALSE, !.batch = Nothing]]
            /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>
\* The transaction was committed, and its owner does not hear of it: it has to take the lane over anew.
Unheard(o) == /\ Applies(o) /\ Apply(o)
              /\ owner' = [owner EXCEPT ![o] = IF Wrong = "unheardIsAbort" THEN [@ EXCEPT !.open = FALSE, !.batch = Nothing]
                                               ELSE Dead]
              /\ UNCHANGED <<log, clock, epoch, away, damaged>>
Crash(o) == /\ owner[o].epoch > 0 /\ owner' = [owner EXCEPT ![o] = Dead]
            /\ UNCHANGED <<log, clock, state, out, early, epoch, away, damaged>>

Next == \/ \E q \in Partitions : Away(q) \/ Damage(q) \/ \E due \in 1..Times : Append_(q, due)
        \/ Tick
        \/ \E o \in Owners : \/ TakeOver(o) \/ Begin(o) \/ Commit(o) \/ Abort(o) \/ Unheard(o) \/ Crash(o)
                             \/ \E q \in Partitions : Index(o, q)

\* -- Guarantees -------------------------------------------------------------------------------------------------
Once == \A q \in Partitions, i \in Offsets : out[q][i] <= 1
NotEarly == ~early
\* A record has left, or is held, exactly if the two numbers say so. So no record is lost, and a restart knows all of it.
Passed(q, i) == i <= state[q].c /\ Leq(Key(q, i), state[q].w)
NumbersTell == \A q \in Partitions : \A i \in 1..Len(log[q]) :
                 /\ Passed(q, i) <=> (out[q][i] >= 1 \/ i \in state[q].held)
                 /\ ~(out[q][i] >= 1 /\ i \in state[q].held)
\* Owners are alike, so a state counts once for all exchanges of owners.
Alike == Permutations(Owners)
====
