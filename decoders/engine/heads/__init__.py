"""Draft heads: small modules that draft from the target's hidden states (EAGLE, EAGLE-3, MTP)."""
