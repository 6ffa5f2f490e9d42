"""The admin API, ``/api/v1``: questions of operators to a running group, and changes in it, over HTTP.

Paths
-----
Status, pending records, look-ups and routers (:mod:`sidecar.http.api.questions`), the headers and the value of one
record (:mod:`sidecar.http.api.content`), pending schedules one by one
(:mod:`sidecar.http.api.schedules`), rejected records, which can be driven again (:mod:`sidecar.http.api.rejected`),
records for delay topics (:mod:`sidecar.http.api.records`), policies (:mod:`sidecar.http.api.policies`), pause, resume
and drain (:mod:`sidecar.http.api.switches`).

Any instance answers for the whole group: :class:`sidecar.operations.desk.Operations` knows the reports of all
instances, and writes changes to the policies topic, which all instances follow. So a router never forwards a request to
another router, and needs no credentials for it.

``GET /api/v1/openapi.json`` describes every path. No page with scripts shows it. Beside the API, and only where
``admin.page`` is set, the listener has the files of the page for operators (:mod:`sidecar.http.page`).

Begin with :mod:`sidecar.http.api.application`, then one of the modules of paths; the process calls ``start`` in
:mod:`sidecar.http.api.server`.

Roles
-----
The API is off without a token file. A caller shows ``Authorization: Bearer TOKEN``; the token decides the role:

========  =====================================================================
read      GET and HEAD, which change nothing
operate   the same, and POST, PUT, PATCH and DELETE; of records only controls; drain also wants the topic's name again,
          as ``confirm``
produce   POST of records that are no controls, and nothing else but GET of ``/caller``; only this role may POST them
========  =====================================================================

The guard compares a token with all tokens of the file, each in constant time, by their digests; it does not keep the
text of the file. It reads the file again when it changes, at most once a second. A new file that is unusable changes
nothing, and the log says so. With TLS a client certificate may be required besides the token, never instead: a role
belongs to a token.

Limits, all before a request reaches the code that answers it (:mod:`sidecar.http`)
---------------------------------------------------------------------------------------
* Request line 8 kB, headers 16 kB, body 64 kB; the limits of each connection (:mod:`sidecar.http.server`); 200
  requests a second and token, with bursts of 400; 10 a second without a known token.
* ``Host`` must be a name of this listener, so that no web page can lead a browser here by a name of its own (DNS
  rebinding). A change must be ``application/json``, which no form can send; there is no CORS. DELETE has no body, and
  no form can send it, so it needs no type.
* Calls that wait for Kafka run in few threads (:mod:`sidecar.http.api.calls`), two of them for changes only, so that a
  pause does not wait behind look-ups. After 20 s the caller gets 504; a call beyond the queue gets 503. Rejected
  records are driven again in a thread of their own, within a number and a time for each call; the rest waits for the
  next call.
* Long answers are written in pieces, so that none holds the interpreter's lock for long and delays releases.

Answers
-------
An error is problem JSON (RFC 9457) with the id of the request. Its text is written for callers; the router's log has
internal errors under that id, and the answer never has them. Each request is the event ``admin_request`` in the log,
with role, digest and status, and without token, query or body. It is logged at the level ``info`` for changes and for
the headers and the value of a record, and at ``debug`` for all other questions.

Rejected
--------
* *Identity by client certificate alone*: names in certificates would need a mapping to roles, another file to rotate.
* *A session or a cookie*: the page sends its token as every client does, so another site cannot forge a request.
* *Forwarding to the instance that owns a partition*: needs routes between pods, a second set of credentials and a
  timeout inside the timeout; and it fails just when an instance does.
* *An idempotency key*: every change states the wanted result, so a repetition changes nothing more, and a record that
  is driven again is marked in the same transaction. A record that is written twice is two records, and the document
  says so: recognising earlier keys would take a store that outlives the process.
"""
