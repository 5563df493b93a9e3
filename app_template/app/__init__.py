"""The app: every module of this package is searched for agents, tools and pages when it starts."""
