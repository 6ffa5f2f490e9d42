---- MODULE Lanes ----
\* Who may write the states of partitions (sidecar/engine/ownership/lanes.py). A process serves its partitions with one
\* producer, its lane. Each partition is taken over by itself: the new owner fences the partition's own id, reads the
\* state, and ends the lane that the state names. That also ends the lane for the other partitions of the process.
\*   seen    the state of a partition as a reader finds it,
\*   last    the state after all committed transactions; a transaction whose marker is lost hides them,
\*   alive   the lanes that no other producer has fenced,
\*   open    the parts of open transactions, at most one for each partition of a lane,
\*   late    the lanes whose process has lost a connection: copies of their commits may still be on their way,
\*   left    the lanes whose ids a process has given up, because their last transaction does not end,
\*   hung    the threads that hang in an ownership that has ended otherwise; each may still hand in a part.
\* A state has the name of a lane, or NoLane, and the number of records that have left. All records are due.
EXTENDS Naturals, FiniteSets, TLC
CONSTANTS Partitions, Records, Owners, TakeOvers, Wrong
VARIABLES begun, lanes, left, alive, open, late, hung, seen, last, stuck, owner, out

NoLane == 0
Idle == [phase |-> "idle", cut |-> FALSE, lane |-> NoLane, done |-> 0, ended |-> NoLane, wrote |-> FALSE]
Serving == [Idle EXCEPT !.phase = "serving", !.lane = 1]

\* One process serves all partitions.
Init == \E first \in Owners :
        /\ begun = 0
        /\ lanes = [o \in Owners |-> IF o = first THEN 1 ELSE NoLane]
        /\ alive = {1} /\ open = {} /\ late = {} /\ hung = {} /\ left = [o \in Owners |-> {}]
        /\ seen = [p \in Partitions |-> [lane |-> 1, done |-> 0]] /\ last = seen
        /\ stuck = [p \in Partitions |-> FALSE]
        /\ owner = [o \in Owners |-> [p \in Partitions |-> IF o = first THEN Serving ELSE Idle]]
        /\ out = [p \in Partitions |-> [i \in 1..Records |-> 0]]

Has(X, p) == \E x \in X : x.to = p
The(X, p) == CHOOSE x \in X : x.to = p
Parts(l) == {x \in open : x.by = l}
\* No open or hidden transaction lies in front of the end of the state, so a reader sees all of it.
Settled(p) == ~stuck[p] /\ ~Has(open, p)
\* The names of lanes are used once. A name that nothing has any more is as good as a new one.
Used == alive \cup UNION {left[o] : o \in Owners} \cup {lanes[o] : o \in Owners} \cup {s[p].lane : s \in {seen, last}, p \in Partitions}
              \cup UNION {{owner[o][p].lane, owner[o][p].ended} : o \in Owners, p \in Partitions}
Fresh == CHOOSE l \in 1..(Cardinality(Used) + 1) : l \notin Used /\ \A k \in 1..(l - 1) : k \in Used

\* Fence a lane: it commits nothing more, its open transaction is aborted, and its late commits are refused.
Except(X, l) == {x \in X : x.by # l}
End(l) == alive' = alive \ {l} /\ late' = late \ {l} /\ open' = Except(open, l) /\ hung' = Except(hung, l)
\* The records of the parts X, and the states of the parts T, become visible.
Show(X, T) == /\ last' = [p \in Partitions |-> IF Has(T, p) THEN [lane |-> The(T, p).lane, done |-> The(T, p).done]
                                               ELSE last[p]]
              /\ seen' = [p \in Partitions |-> IF stuck[p] THEN seen[p] ELSE last'[p]]
              /\ out' = [p \in Partitions |-> [i \in 1..Records |->
                           IF Has(X, p) /\ The(X, p).done = i THEN out[p][i] + The(X, p).copies ELSE out[p][i]]]
Apply(l) == Show(Parts(l), Parts(l)) /\ open' = open \ Parts(l)
\* An owner writes its state, and no record.
Write(o, p, lane) == Show({}, {[to |-> p, lane |-> lane, done |-> owner[o][p].done]})
Become(o, p, phase) == owner' = [owner EXCEPT ![o][p].phase = phase]

\* -- A take-over of one partition -------------------------------------------------------------------------------
\* A process gives up the id of a lane that has ended, if an open transaction of it does not end: no thread uses the lane.
MayGiveUp(l) == l \in alive /\ ((l \in late /\ Parts(l) # {}) \/ Wrong = "givesUpInUse")
GiveUp(o, l) == /\ MayGiveUp(lanes[o]) /\ alive' = alive \cup {l} /\ UNCHANGED <<late, open, hung>>
                /\ left' = [left EXCEPT ![o] = {k \in @ : k \in alive \cup {s[q].lane : s \in {seen, last}, q \in Partitions}}
                                              \cup {lanes[o]}]
\* Fence the own id, and join the lane of the process. A lane that the process knows to have ended gets its next
\* producer, which fences the former one.
Fence(o, p) == /\ owner[o][p].phase = "idle" /\ begun < TakeOvers /\ begun' = begun + 1
               /\ \E l \in {lanes[o], Fresh} \ {NoLane} :
                    /\ IF l = lanes[o] THEN l \notin late /\ UNCHANGED <<left, alive, late, open, hung>>
                       ELSE \/ GiveUp(o, l)
                            \/ /\ lanes[o] \notin alive \ late /\ UNCHANGED left
                               /\ alive' = (alive \ {lanes[o]}) \cup {l} /\ late' = late \ {lanes[o]}
                               /\ open' = Except(open, lanes[o]) /\ hung' = Except(hung, lanes[o])
                    /\ lanes' = [lanes EXCEPT ![o] = l]
                    /\ owner' = [x \in Owners |->
                         IF x = o THEN [owner[x] EXCEPT ![p] = [Idle EXCEPT !.phase = "fenced", !.lane = l]]
                         ELSE [owner[x] EXCEPT ![p].cut = owner[x][p].phase \in {"fenced", "named", "read"}]]
               /\ UNCHANGED <<seen, last, stuck, out>>
\* Read the state. A lane that it names for the first time may write, and must be ended: then the state is read again.
Shown(o, p) == \/ Settled(p) \/ Wrong = "readsBehindOpen"
               \/ Wrong = "givenUpReadsBehindOpen" /\ ~stuck[p] /\ \A x \in open : x.to = p => x.by \in left[o]
Read(o, p) == /\ owner[o][p].phase = "fenced" /\ Shown(o, p)
              /\ LET name == seen[p].lane
                     is_last == name \in {NoLane, owner[o][p].ended} \/ Wrong = "formerWrites"
                 IN owner' = [owner EXCEPT ![o][p].phase = IF is_last THEN "read" ELSE "named",
                                           ![o][p].done = seen[p].done,
                                           ![o][p].ended = IF is_last THEN NoLane ELSE name]
              /\ UNCHANGED <<left, begun, lanes, alive, open, late, hung, seen, last, stuck, out>>
\* The process may serve others with its lane, and does not end it, unless a former thread of the partition hangs there.
\* It need not end a lane whose id it has given up.
IsOwn(o, p, l) == \/ l = lanes[o] /\ l \notin late /\ (Wrong = "hungForgotten" \/ \A x \in hung : x.to # p \/ x.by # l)
                  \/ l \in left[o]
EndFormer(o, p) == LET former == IF IsOwn(o, p, owner[o][p].ended) THEN NoLane ELSE owner[o][p].ended IN
  /\ owner[o][p].phase = "named" /\ End(former)
  /\ Become(o, p, IF Wrong = "readOnce" \/ (Wrong = "endedByAnother" /\ former \notin alive) THEN "read" ELSE "fenced")
  /\ UNCHANGED <<left, begun, lanes, seen, last, stuck, out>>
\* An open transaction hides the end of the state: end the lane that the state names so far.
EndHiding(o, p) == LET l == seen[p].lane IN
  /\ owner[o][p].phase = "fenced" /\ ~Settled(p) /\ ~IsOwn(o, p, l) /\ l \in alive /\ End(l)
  /\ UNCHANGED <<left, begun, lanes, seen, last, stuck, owner, out>>
\* Note the lane by the own id. Only the newest owner may.
Noting(o, p) == /\ owner[o][p].phase = "read" /\ (~owner[o][p].cut \/ Wrong = "ownIdNotFenced")
                /\ owner' = [owner EXCEPT ![o][p].phase = "noted", ![o][p].cut = FALSE, ![o][p].ended = NoLane]
                /\ UNCHANGED <<left, begun, lanes, alive, open, late, hung>>
Note(o, p) == Noting(o, p) /\ Write(o, p, owner[o][p].lane) /\ UNCHANGED stuck
\* The marker of the note is lost: the owner hears that it was committed, and no reader sees it.
NoteIsHidden(o, p) == /\ Noting(o, p) /\ ~stuck[p] /\ stuck' = [stuck EXCEPT ![p] = TRUE]
                      /\ UNCHANGED <<seen, last, out>>
ReadAgain(o, p) == /\ owner[o][p].phase = "noted"
                   /\ \/ Shown(o, p) /\ seen[p].lane = owner[o][p].lane
                      \/ Wrong = "notReadAgain"
                   /\ Become(o, p, "serving")
                   /\ UNCHANGED <<left, begun, lanes, alive, open, late, hung, seen, last, stuck, out>>

\* -- A lane writes ------------------------------------------------------------------------------------------------
Usable(l) == l \in alive /\ (l \notin late \/ Wrong \in {"goesOnAfterLoss", "unheardIsAbort"})
MayWrite(o, p) == owner[o][p].phase = "serving" /\ Usable(owner[o][p].lane)
\* A part: the next record, and the state behind it. A second part for the partition writes the record twice.
Put(l, p, done) == LET copies == IF Has(Parts(l), p) THEN The(Parts(l), p).copies ELSE 0 IN
  open' = {x \in open : x.by # l \/ x.to # p} \cup
          {[by |-> l, to |-> p, lane |-> l, done |-> done + 1, copies |-> copies + 1]}
HandIn(o, p) == LET s == owner[o][p] IN
  /\ MayWrite(o, p) /\ ~s.wrote /\ s.done < Records
  /\ Put(s.lane, p, s.done) /\ owner' = [owner EXCEPT ![o][p].wrote = TRUE]
  /\ UNCHANGED <<left, begun, lanes, alive, late, hung, seen, last, stuck, out>>
\* The thread of an ownership hangs while the process takes the partition over again.
Hang(o, p) == LET s == owner[o][p] IN
  /\ MayWrite(o, p) /\ ~s.wrote /\ s.done < Records /\ hung = {}
  /\ hung' = {[by |-> s.lane, to |-> p, done |-> s.done]} /\ owner' = [owner EXCEPT ![o][p] = Idle]
  /\ UNCHANGED <<left, begun, lanes, alive, open, late, seen, last, stuck, out>>
WakeUp(x) == LET part == [by |-> x.by, to |-> x.to, lane |-> x.by, done |-> x.done + 1, copies |-> 1] IN
             /\ Usable(x.by) /\ hung' = hung \ {x}
             \* If the process has another lane by now, the thread commits alone.
             /\ IF \E o \in Owners : lanes[o] = x.by THEN Put(x.by, x.to, x.done) /\ UNCHANGED <<seen, last, out>>
                ELSE Show({part}, {part}) /\ UNCHANGED open
             /\ UNCHANGED <<left, begun, lanes, alive, late, stuck, owner>>

\* The process believes of its parts that they were committed, or were not.
Wrote(o, p) == owner[o][p].wrote /\ owner[o][p].lane = lanes[o]
Busy(o) == Usable(lanes[o]) /\ (Parts(lanes[o]) # {} \/ \E p \in Partitions : Wrote(o, p))
Believe(o, ahead) == owner' = [owner EXCEPT ![o] = [p \in Partitions |->
  IF Wrote(o, p) THEN [owner[o][p] EXCEPT !.done = @ + ahead, !.wrote = FALSE] ELSE owner[o][p]]]
Commit(o) == LET X == Parts(lanes[o]) IN
  /\ Busy(o) /\ Believe(o, 1) /\ open' = open \ X
  /\ \E S \in IF Wrong = "torn" THEN SUBSET X ELSE {X} :
     \E T \in IF Wrong = "progressOfFirst" THEN SUBSET S ELSE {S} : Show(S, T)
  /\ UNCHANGED <<left, begun, lanes, alive, late, hung, stuck>>
\* The brokers refuse a part.
Abort(o) == /\ Busy(o) /\ Parts(lanes[o]) # {} /\ Believe(o, 0) /\ open' = open \ Parts(lanes[o])
            /\ UNCHANGED <<left, begun, lanes, alive, late, hung, seen, last, stuck, out>>
\* A commit is on its way, and the connection is lost. So the lane ends, even if a copy of the commit is answered.
Lose(o) == LET l == lanes[o] IN
  /\ Busy(o) /\ late' = late \cup {l}
  /\ CASE Wrong = "goesOnAfterLoss" -> Apply(l) /\ Believe(o, 1)
       [] Wrong = "unheardIsAbort" -> Believe(o, 0) /\ UNCHANGED <<open, seen, last, out>>
       [] OTHER -> /\ owner' = [owner EXCEPT ![o] = [p \in Partitions |->
                        IF owner[o][p].phase = "serving" /\ owner[o][p].lane = l THEN Idle ELSE owner[o][p]]]
                   /\ UNCHANGED <<open, seen, last, out>>
  /\ UNCHANGED <<left, begun, lanes, alive, hung, stuck>>
\* A copy of a commit arrives: it commits the transaction that is open by then.
Arrive(l) == /\ l \in late /\ Parts(l) # {} /\ Apply(l)
             /\ UNCHANGED <<left, begun, lanes, alive, late, hung, stuck, owner>>
\* An orderly end: the state names no lane any more, so that no take-over need end the lane of the other partitions.
GiveBack(o, p) == /\ MayWrite(o, p) /\ ~Busy(o) /\ Write(o, p, NoLane)
                  /\ owner' = IF Wrong = "servesOn" THEN owner ELSE [owner EXCEPT ![o][p] = Idle]
                  /\ UNCHANGED <<left, begun, lanes, alive, open, late, hung, stuck>>

\* -- The world ------------------------------------------------------------------------------------------------------
\* An ownership ends by an error, or finds its lane ended; the process lives on, and so do its other ownerships.
\* The wrong router takes a partition along to the next lane while no other router is taking the partition over.
Leave(o, p) == LET s == owner[o][p] IN
  /\ s.phase # "idle" /\ ~(s.wrote /\ Usable(s.lane))
  /\ IF /\ Wrong = "goesOnInNextLane" /\ s.phase = "serving" /\ s.lane \notin alive
        /\ last[p].lane = s.lane /\ \A x \in Owners \ {o} : owner[x][p].phase = "idle"
     THEN LET l == IF lanes[o] \in alive THEN lanes[o] ELSE Fresh IN
          /\ lanes' = [lanes EXCEPT ![o] = l] /\ alive' = alive \cup {l}
          /\ owner' = [owner EXCEPT ![o][p].lane = l, ![o][p].wrote = FALSE]
     ELSE owner' = [owner EXCEPT ![o][p] = Idle] /\ UNCHANGED <<lanes, alive>>
  /\ UNCHANGED <<left, begun, open, late, hung, seen, last, stuck, out>>
\* A process dies. A transaction of it may stay open, and its commit may be on its way.
Crash(o) == LET l == lanes[o] IN
  /\ l # NoLane /\ lanes' = [lanes EXCEPT ![o] = NoLane]
  /\ owner' = [owner EXCEPT ![o] = [p \in Partitions |-> Idle]]
  /\ IF Parts(l) = {} THEN End(l) ELSE hung' = Except(hung, l) /\ UNCHANGED <<alive, open, late>>
  /\ left' = [left EXCEPT ![o] = {}] /\ UNCHANGED <<begun, seen, last, stuck, out>>
\* The coordinator fences the producer of a transaction that is open for too long.
TimeOut(l) == Parts(l) # {} /\ End(l) /\ UNCHANGED <<left, begun, lanes, seen, last, stuck, owner, out>>
\* An operator ends the hidden transaction: it counts as aborted, and readers see the transactions behind it.
EndHidden(p) == /\ stuck[p] /\ stuck' = [stuck EXCEPT ![p] = FALSE] /\ seen' = [seen EXCEPT ![p] = last[p]]
                /\ UNCHANGED <<left, begun, lanes, alive, open, late, hung, last, owner, out>>

Next == \/ \E l \in alive : Arrive(l)
        \/ \E l \in alive : TimeOut(l)
        \/ \E x \in hung : WakeUp(x)
        \/ \E p \in Partitions : EndHidden(p)
        \/ \E o \in Owners : Commit(o) \/ Abort(o) \/ Lose(o) \/ Crash(o)
        \/ \E o \in Owners, p \in Partitions :
             \/ Fence(o, p) \/ Read(o, p) \/ EndFormer(o, p) \/ EndHiding(o, p) \/ Note(o, p) \/ NoteIsHidden(o, p)
             \/ ReadAgain(o, p) \/ HandIn(o, p) \/ Hang(o, p) \/ GiveBack(o, p) \/ Leave(o, p)

\* -- Guarantees -----------------------------------------------------------------------------------------------------
Once == \A p \in Partitions, i \in 1..Records : out[p][i] <= 1
\* A record has left exactly if the state says so. So no record is lost.
NumbersTell == \A p \in Partitions, i \in 1..Records : i <= last[p].done <=> out[p][i] >= 1
\* The state names the lane that may write it, so the next owner can fence that lane.
Named == \A o \in Owners, p \in Partitions : MayWrite(o, p) => last[p].lane = owner[o][p].lane
\* No guarantee, but a story that must be played: another process has taken one partition over, the first process has
\* taken the other one over again in its next lane, and all records have left.
Unplayed == ~ /\ \E o, x \in Owners, p, q \in Partitions :
                   /\ o # x /\ MayWrite(o, p) /\ owner[o][p].lane # 1
                   /\ p # q /\ MayWrite(x, q) /\ owner[x][q].lane # 1
              /\ \A p \in Partitions : last[p].done = Records
\* Another story: a partition goes on in the next lane of its process, while the transaction of the lane that the process
\* has given up is still open for the other partition.
NeverGoneOn == ~ \E o \in Owners, p \in Partitions : MayWrite(o, p) /\ \E l \in left[o] : Parts(l) # {}
\* Owners are alike, and partitions are, so a state counts once for all exchanges of them.
Alike == Permutations(Owners) \cup Permutations(Partitions)
====
