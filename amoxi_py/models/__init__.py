"""Language models behind the `ChatModel` port: offline, scripted, and providers' on their own SDKs."""
