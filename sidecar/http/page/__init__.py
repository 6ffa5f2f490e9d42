"""The page: what operators see of a running group in a browser, served beside the admin API.

Files of HTML, CSS and ES modules in ``static``, as they are written: there is no build step, and nothing is loaded from
elsewhere. They hold nothing of the cluster; all that is shown comes from the admin API, for the role of the token that
the user gives, and what the API refuses the page cannot do either. Off unless ``admin.page`` is set.

May import: ``http``. Begin with :mod:`sidecar.http.page.files` for what is served and with which headers, and with
``static/main.js`` for what runs in the browser: it shows one of the ``view-*.js``, each of which asks (``load``) and
shows (``render``), two seconds later again, while somebody looks.

Why a browser cannot be turned against the router
-------------------------------------------------
* *Requests in the user's name from elsewhere (CSRF)*: the token is sent as a header by the page's own code, and there
  is no cookie; another origin has no token to send, and may not send the header.
* *Markup in names and values*: the page writes text only. ``require-trusted-types-for`` with no policy lets the browser
  refuse whatever would parse a string as markup or script, and ``script-src 'self'`` has no room for inline code.
* *Frames of others (clickjacking)*: ``frame-ancestors 'none'``.
* *Names of others that lead here (DNS rebinding)*: the guard checks ``Host`` before it gives out a file.

The token is kept in ``sessionStorage``: it ends with the tab and is no other tab's.
"""
