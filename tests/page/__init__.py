"""Tests the page in a real headless Chromium with a running router (``test_page.py``), and takes pictures of it."""
