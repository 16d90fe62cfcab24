"""Who may send a request, and under which address."""
