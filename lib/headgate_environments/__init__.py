"""headgate_environments"""
