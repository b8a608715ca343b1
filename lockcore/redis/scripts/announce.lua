-- ANNOUNCE (docs/protocol.md, STORAGE GENERATION): writes the floor of a change of the storage generation to a node, admitted or not, unless the node has seen an
-- epoch that is not below it. Leases, counters and base stay as they are.
-- KEYS  fg:node
-- ARGV  run id, epoch of the floor, id of the change
-- Reply 'ADMITTED' | 'OK' (it has the floor, and is not admitted) | the highest epoch that the node has seen, of its base and of a floor of another change, if
--       that is not below the floor | 'GONE' (the server was restarted)
-- Why atomic: of two changes with the same epoch, drawn from two registers, only one gets a node.
local live = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if live ~= ARGV[1] then return 'GONE' end
local node = redis.call('HMGET', KEYS[1], 'run', 'marks', 'base', 'floor')
local floor = ARGV[2] .. ' ' .. ARGV[3]
if node[4] ~= floor then
  local seen = math.max(math.floor(tonumber(node[3] or '0') / 4294967296), tonumber(string.match(node[4] or '0', '^%d+')))
  if seen >= tonumber(ARGV[2]) then return string.format('%.0f', seen) end
  redis.call('HSET', KEYS[1], 'floor', floor)
end
return node[1] == live and node[2] == command_marks() and 'ADMITTED' or 'OK'
