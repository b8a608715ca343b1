-- MARK (docs/protocol.md, FAST READMISSION): marks this life of a node that is not admitted. INSTALL and READMIT
-- require the mark.
-- KEYS  fg:node
-- ARGV  32 random digits
-- Reply the mark, 'run id, command marks, digits': that of this life if there is one already, otherwise a new one with
--       the digits of the caller
--       | 'ALREADY' the node is admitted under its live run id: no effect
-- Why atomic: all gateways get the same mark for one life. A flush deletes it, READMIT too, so what was read for it
-- before is not installed later; nor is it after a command that loads older data, which brings an older mark back but
-- changes the command marks.
local live = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local node = redis.call('HMGET', KEYS[1], 'run', 'mark')
if node[1] == live then return 'ALREADY' end
local life = live .. ' ' .. command_marks() .. ' '
if node[2] and string.sub(node[2], 1, #life) == life then return node[2] end
redis.call('HSET', KEYS[1], 'mark', life .. ARGV[1])
return life .. ARGV[1]
