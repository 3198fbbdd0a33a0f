"""The dashboard: server-rendered pages that show a rollout and let people act on it, always with their own token."""
