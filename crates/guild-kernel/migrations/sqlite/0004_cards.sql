-- What a turn wrote is found by its name, however much its agent has written since.
CREATE INDEX cards_turn ON cards (agent_turn_id) WHERE agent_turn_id IS NOT NULL;
