"""The page that shows operators a running group in a browser, served beside the admin API.

The page consists of files of HTML, CSS and ES modules in ``static``, served as they are written: there is no build
step, and they load nothing from elsewhere. The files hold no data of the cluster. All data comes from the admin API,
for the role of the token that the user gives, so the page has no right that the API does not give. It is off unless
``admin.page`` is set.

Begin with :mod:`sidecar.http.page.files` (the files and their headers), and with ``static/main.js`` (the code in the
browser). ``main.js`` shows one of the ``view-*.js``. Each view asks (``load``) and shows (``render``), and most do so
again every two seconds while the page is visible.

Why a browser cannot be turned against the router
-------------------------------------------------
* *Requests in the user's name from elsewhere (CSRF)*: the page's own code sends the token as a header, and there is no
  cookie; another origin has no token, and may not send the header.
* *Markup in names and values*: the page writes text only. With ``require-trusted-types-for`` and no policy the browser
  refuses any call that would parse a string as markup or script, and ``script-src 'self'`` refuses inline code.
* *Frames of other sites (clickjacking)*: ``frame-ancestors 'none'``.
* *Names of other sites that lead here (DNS rebinding)*: the guard checks ``Host`` before it gives out a file.

The page keeps the token in ``sessionStorage``: it ends with the tab, and no other tab has it.
"""
