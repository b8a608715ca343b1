-- LOOK: returns the lease of a resource on this node, with any holder. It changes no lease, but may correct its time
-- (time_left).
-- KEYS  fg:node, then for each resource: its lease key, or that of one shared lease
-- ARGV  run id, then for each resource: the tail of a lease (as in ACQUIRE), or ''; if it is shared, the lease of that
--       caller is returned
-- Reply one string for each resource: '0 ms lease' with the time left (-1 = no ttl), and '?' for a value that is no
--       lease, or for shared leases of others | '2' no lease
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: the lease and its ttl are of one moment.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out = {}
for i = 2, #KEYS do
  local key = KEYS[i]
  local l = read_lease(key)
  local index = l == FOREIGN and not is_shared(key) and read_index(key)
  if index then
    local own, place = nil, nil
    if ARGV[i] ~= '' then own, place = find_own(key, index, ARGV[i]) end
    if own then l, key = own, place elseif not has_holders(key, index) then l = nil end
  end
  local reply = '2'
  if l then reply = '0 ' .. time_left(key, l) .. ' ' .. (l == FOREIGN and '?' or redis.call('GET', key)) end
  out[#out + 1] = reply
end
return out
