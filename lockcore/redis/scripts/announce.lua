-- ANNOUNCE (docs/protocol.md, STORAGE GENERATION): writes the floor of a change of the storage generation to an admitted node, unless the node has seen an epoch
-- that is not below it. Leases, counters and base stay as they are.
-- KEYS  fg:node
-- ARGV  run id, epoch of the floor, id of the change
-- Reply 'OK' | the highest epoch that the node has seen, of its base and of a floor of another change, if it is not below the floor; or error UNINIT
-- Why atomic: of two changes with the same epoch, drawn from two registers, only one gets a node.
local node = redis.call('HMGET', KEYS[1], 'run', 'marks', 'base', 'floor')
if node[1] ~= ARGV[1] or node[2] ~= command_marks() then return redis.error_reply('UNINIT node not admitted, or its settings must be checked again') end
local floor = ARGV[2] .. ' ' .. ARGV[3]
if node[4] == floor then return 'OK' end
local seen = math.max(math.floor(tonumber(node[3] or '0') / 4294967296), tonumber(string.match(node[4] or '0', '^%d+')))
if seen >= tonumber(ARGV[2]) then return string.format('%.0f', seen) end
redis.call('HSET', KEYS[1], 'floor', floor)
return 'OK'
