-- A turn that is over has an outcome, also one that could not be done; and what nobody handles is no message.
ALTER TABLE agent_inbox DROP CONSTRAINT agent_inbox_check;
ALTER TABLE agent_inbox DROP CONSTRAINT agent_inbox_message_type_check;
DELETE FROM agent_inbox WHERE message_type IN ('ui_action', 'command_anchor');
UPDATE agent_inbox SET outcome = 'failed'
    WHERE message_type = 'turn' AND closed_ms IS NOT NULL AND outcome IS NULL;
ALTER TABLE agent_inbox ADD CONSTRAINT agent_inbox_outcome_of_closed
    CHECK ((outcome IS NOT NULL) = (message_type = 'turn' AND closed_ms IS NOT NULL));
ALTER TABLE agent_inbox ADD CONSTRAINT agent_inbox_message_type_check
    CHECK (message_type IN ('turn', 'tool_result', 'timeout', 'stop'));

-- A turn ends once, whatever the event is called.
CREATE UNIQUE INDEX event_turn_task ON event (substr(id, 1, 37)) WHERE topic = 'turns' AND kind = 'turn.task';
