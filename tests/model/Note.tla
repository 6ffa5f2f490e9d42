---- MODULE Note ----
\* Who may write the state of one partition: the producer of the partition's own id, or a lane that the state names
\* (sidecar/engine/ownership/lanes.py). A lane is served by a process with other partitions, so a take-over cannot
\* fence it before it knows the lane's name.
\*   seen    the state as a reader finds it,
\*   last    the state after all committed transactions; a transaction whose marker is lost hides them.
\* A state is the name of a lane, or NoLane, the epoch of the owner that wrote it, and how many were written before it.
EXTENDS Naturals, FiniteSets, TLC
CONSTANTS Owners, Epochs, Writes, Wrong
VARIABLES epoch, lanes, ended, open, seen, last, stuck, owner, forked
vars == <<epoch, lanes, ended, open, seen, last, stuck, owner, forked>>

NoLane == 0
Idle == [phase |-> "idle", epoch |-> 0, base |-> 0, ended |-> NoLane]

Init == /\ epoch = 0
        /\ lanes = [o \in Owners |-> NoLane]
        /\ ended = {NoLane} /\ open = {}
        /\ seen = [lane |-> NoLane, by |-> 0, number |-> 0] /\ last = seen /\ stuck = FALSE
        /\ owner = [o \in Owners |-> Idle] /\ forked = FALSE

\* No open or hidden transaction lies in front of the end of the state, so a reader sees all of it.
Settled == ~stuck /\ open = {}
\* The names of lanes are used once: a process that starts, or whose lane has ended, takes the next one.
Used == UNION {{lanes[o] : o \in Owners}, ended, open, {seen.lane, last.lane}}
Fresh == CHOOSE l \in 1..(Cardinality(Used) + 1) : l \notin Used

Become(o, phase) == owner' = [owner EXCEPT ![o].phase = phase]
\* An owner commits the next state. Forked: the last one is neither its own nor the one that it has read.
Write(o, lane) == /\ last.number < Writes
                  /\ last' = [lane |-> lane, by |-> owner[o].epoch, number |-> last.number + 1]
                  /\ seen' = IF stuck THEN seen ELSE last'
                  /\ forked' = (forked \/ (last.by # owner[o].epoch /\ last.number # owner[o].base))

\* -- A take-over ------------------------------------------------------------------------------------------------
\* Fence the own id, and join the lane of the process, which may need a new one.
Fence(o) == /\ owner[o].phase = "idle" /\ epoch < Epochs /\ epoch' = epoch + 1
            /\ owner' = [owner EXCEPT ![o] = [phase |-> "fenced", epoch |-> epoch + 1, base |-> 0, ended |-> NoLane]]
            /\ lanes' = [lanes EXCEPT ![o] = IF @ \in ended THEN Fresh ELSE @]
            /\ UNCHANGED <<ended, open, seen, last, stuck, forked>>
\* Read the state. A lane that it names for the first time may write, and must be ended: then the state is read again.
Read(o) == /\ owner[o].phase = "fenced" /\ (Settled \/ Wrong = "readsBehindOpen")
           /\ LET last_read == seen.lane \in {NoLane, owner[o].ended} \/ Wrong = "formerWrites"
              IN owner' = [owner EXCEPT ![o].phase = IF last_read THEN "read" ELSE "named",
                                        ![o].base = seen.number, ![o].ended = seen.lane]
           /\ UNCHANGED <<epoch, lanes, ended, open, seen, last, stuck, forked>>
\* End the lane that was read, which aborts its open transaction. The own process may serve others with it: then do not.
EndFormer(o) == /\ owner[o].phase = "named"
                /\ LET former == {owner[o].ended} \ {lanes[o]}
                       goes_on == Wrong = "readOnce" \/ (Wrong = "endedByAnother" /\ former \subseteq ended)
                   IN /\ ended' = ended \cup former /\ open' = open \ former
                      /\ Become(o, IF goes_on THEN "read" ELSE "fenced")
                /\ UNCHANGED <<epoch, lanes, seen, last, stuck, forked>>
\* An open transaction hides the end of the state: end the lane that the state names so far.
EndHiding(o) == /\ owner[o].phase = "fenced" /\ ~Settled /\ seen.lane \notin ended \cup {lanes[o]}
                /\ ended' = ended \cup {seen.lane} /\ open' = open \ {seen.lane}
                /\ UNCHANGED <<epoch, lanes, seen, last, stuck, owner, forked>>
\* Note the lane by the own id. Only the owner of the newest epoch may.
Noting(o) == /\ owner[o].phase = "read" /\ (owner[o].epoch = epoch \/ Wrong = "ownIdNotFenced")
Note(o) == /\ Noting(o) /\ Write(o, lanes[o]) /\ Become(o, "noted")
           /\ UNCHANGED <<epoch, lanes, ended, open, stuck>>
\* The marker of the note is lost: the owner hears that it was committed, and no reader sees it.
NoteIsHidden(o) == /\ Noting(o) /\ ~stuck /\ stuck' = TRUE /\ Become(o, "noted")
                   /\ UNCHANGED <<epoch, lanes, ended, open, seen, last, forked>>
ReadAgain(o) == /\ owner[o].phase = "noted"
                /\ (Settled /\ seen.lane = lanes[o]) \/ Wrong = "notReadAgain"
                /\ Become(o, "serving")
                /\ UNCHANGED <<epoch, lanes, ended, open, seen, last, stuck, forked>>

\* -- The lane writes ------------------------------------------------------------------------------------------------
MayWrite(o) == owner[o].phase = "serving" /\ lanes[o] \notin ended
Begin(o) == /\ MayWrite(o) /\ lanes[o] \notin open /\ open' = open \cup {lanes[o]}
            /\ UNCHANGED <<epoch, lanes, ended, seen, last, stuck, owner, forked>>
Commit(o) == /\ MayWrite(o) /\ lanes[o] \in open /\ open' = open \ {lanes[o]} /\ Write(o, lanes[o])
             /\ UNCHANGED <<epoch, lanes, ended, stuck, owner>>
\* An orderly end: the state names no lane any more, so that no take-over need end the lane of the other partitions.
GiveBack(o) == /\ MayWrite(o) /\ lanes[o] \notin open /\ Write(o, NoLane)
               /\ (IF Wrong = "servesOn" THEN UNCHANGED owner ELSE owner' = [owner EXCEPT ![o] = Idle])
               /\ UNCHANGED <<epoch, lanes, ended, open, stuck>>

\* -- The world ------------------------------------------------------------------------------------------------------
\* An ownership ends by an error; the process lives on, and so does its lane.
Leave(o) == /\ owner[o].phase # "idle" /\ lanes[o] \notin open
            /\ owner' = [owner EXCEPT ![o] = Idle]
            /\ UNCHANGED <<epoch, lanes, ended, open, seen, last, stuck, forked>>
\* A process dies; its producer can be no more heard of, though a transaction of it may be open.
Crash(o) == /\ lanes[o] # NoLane
            /\ owner' = [owner EXCEPT ![o] = Idle] /\ lanes' = [lanes EXCEPT ![o] = NoLane]
            /\ UNCHANGED <<epoch, ended, open, seen, last, stuck, forked>>
\* The coordinator fences the producer of a transaction that is open for too long, or the take-over of another
\* partition of the lane does; its open transaction is aborted.
EndsElsewhere(l) == /\ l \in (open \cup {lanes[o] : o \in Owners}) \ ended
                    /\ open' = open \ {l} /\ ended' = ended \cup {l}
                    /\ UNCHANGED <<epoch, lanes, seen, last, stuck, owner, forked>>
\* An operator ends the hidden transaction: it counts as aborted, and readers see the transactions behind it.
EndHidden == /\ stuck /\ stuck' = FALSE /\ seen' = last
             /\ UNCHANGED <<epoch, lanes, ended, open, last, owner, forked>>

Next == \/ EndHidden
        \/ \E l \in open \cup {lanes[o] : o \in Owners} : EndsElsewhere(l)
        \/ \E o \in Owners : \/ Fence(o) \/ Read(o) \/ EndFormer(o) \/ EndHiding(o)
                             \/ Note(o) \/ NoteIsHidden(o) \/ ReadAgain(o)
                             \/ Begin(o) \/ Commit(o) \/ GiveBack(o) \/ Leave(o) \/ Crash(o)

\* -- Guarantees -----------------------------------------------------------------------------------------------------
\* Every transaction goes on from the state that the one before has left.
OneWriter == ~forked
\* The state names the lane that may write it, so the next owner can fence that lane.
Named == \A o \in Owners : MayWrite(o) => last.lane = lanes[o]
Alike == Permutations(Owners)
====
