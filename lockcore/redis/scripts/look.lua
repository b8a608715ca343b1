-- LOOK: returns the lease of a resource on this node, with any holder. It changes no lease, but may correct its time
-- (time_left).
-- KEYS  fg:node, then for each resource: its lease key, or that of one shared lease
-- ARGV  run id, then for each resource which lease is looked for if the resource is shared: the tail of a lease (as in
--       ACQUIRE): that of this caller; '*': any; '': none
-- Reply one string for each resource: '0 ms lease' with the time left (-1 = no ttl), and '?' for a value that is no
--       lease | '0 ms shared nonce nonce …' several share it, and any was looked for | '2' no lease
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: the lease and its ttl are of one moment.
-- What needs shared leases is left to look_shared.lua.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out = {}
for i = 2, #KEYS do
  local key, reply = KEYS[i], '2'
  if string.byte(key, -33) == 9 then break end
  local l = read_lease(key)
  if l == FOREIGN and redis.pcall('GETRANGE', key, '0', '6') == 'shared ' then break end
  if l then reply = '0 ' .. time_left(key, l) .. ' ' .. (l == FOREIGN and '?' or redis.call('GET', key)) end
  out[#out + 1] = reply
end
if #out + 1 == #KEYS then return out end
