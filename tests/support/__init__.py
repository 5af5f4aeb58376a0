"""What tests share: nodes as processes, clients, ports."""
