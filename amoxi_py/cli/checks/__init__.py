"""What `amoxi doctor` looks at, one part a file; none of it changes anything or asks a provider."""
