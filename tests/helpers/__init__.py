"""What tests share: tiny models, tokenizers, pictures, explanations written by hand, servers and a browser."""
