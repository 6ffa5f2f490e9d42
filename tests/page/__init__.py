"""The page in a real headless Chromium: against a running router (``test_page.py``), and pictures of it."""
