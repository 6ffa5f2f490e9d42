"""The admin API, ``/api/v1``: what operators ask of a running group and change in it, over HTTP.

What
----
Status, pending records and look-ups (:mod:`sidecar.http.api.questions`), pending schedules one by one
(:mod:`sidecar.http.api.schedules`), rejected records, which can be driven again (:mod:`sidecar.http.api.rejected`),
records for delay topics (:mod:`sidecar.http.api.records`), policies (:mod:`sidecar.http.api.policies`), pause, resume
and drain (:mod:`sidecar.http.api.switches`).

Any instance answers for the whole group: questions go through ``Inquiries``, which knows what all instances report, and
changes through the policies topic, which all of them follow. So no request is ever forwarded from one router to
another, and none needs credentials for the next.

``GET /api/v1/openapi.json`` describes every path. There is no page with scripts that would show it. Beside the API, and
only where ``admin.page`` is set, the listener has the files of the page for operators (:mod:`sidecar.http.page`).

May import: ``http``, ``http.page``, ``rejected``, ``finding``, ``status``, ``policies``, ``process``, ``kafka``,
``config``. Begin with :mod:`sidecar.http.api.application`, then one of the modules of paths; the process calls
``start`` in :mod:`sidecar.http.api.server`.

Who
---
Off without a token file. A caller shows ``Authorization: Bearer TOKEN``; the token decides the role:

========  =====================================================================
read      GET and HEAD, which change nothing
operate   the same, and POST, PUT, PATCH and DELETE; drain also wants the topic's name again, as ``confirm``
produce   POST of records, and nothing else; no other role may
========  =====================================================================

All tokens of the file are compared, each in constant time, by their digests; the file's text is not kept. It is read
again when it changes, at most once a second; a new file that cannot be used changes nothing, and the log says so.
With TLS a client certificate may be asked for besides, never instead: a role belongs to a token.

Limits, all before a request reaches the code that answers it (:mod:`sidecar.http`)
---------------------------------------------------------------------------------------
* Request line 8 kB, headers 16 kB, body 64 kB; the limits of each connection (:mod:`sidecar.http.server`); 200
  requests a second and token, with bursts of 400; 10 a second without a known token.
* ``Host`` must be a name of ours, so that no web page can lead a browser here by a name of its own (DNS rebinding).
  What changes something must be ``application/json``, which no form can send; there is no CORS. DELETE has no body and
  no form, so it needs no type.
* Calls that wait for Kafka run in few threads (:mod:`sidecar.http.api.calls`), two of them for changes only, so that a
  pause does not wait behind look-ups. After 20 s the caller gets 504; more than can wait get 503. Rejected records are
  driven again in a thread of their own, so many and for so long in one call; what is left waits for the next.
* Long answers are written in pieces, so that none holds the interpreter's lock for long: releasing goes on beside it.

What answers say
----------------
An error is problem JSON (RFC 9457) with the id of the request. Its text is written for callers; what fails inside is
in the router's log under that id, and never in the answer. Each request is the event ``admin_request`` in the log, with
role, digest and status, and without token, query or body.

Rejected
--------
* *Identity by client certificate alone*: names in certificates would need a mapping to roles, another file to rotate.
* *A session or a cookie*: the page sends its token as everybody does, and there is nothing to forge a request with.
* *Forwarding to the instance that owns a partition*: needs routes between pods, a second set of credentials and a
  timeout inside the timeout; and it fails just when an instance does.
* *An idempotency key*: every change here states what shall be, so that doing it twice is doing it once; and
  a record that is driven again is marked in the same transaction. A record that is written twice is two records, and
  the caller is told so: to know keys of before would take a store that outlives the process.
"""
