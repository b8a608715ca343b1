-- RELEASE (PROTOCOL.md R7): gives back one hold; with the last one the lease goes. Never touches a counter.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, mark of the caller, how ('0': one hold, '1': all of them, '2': one, but never the last)
-- Reply one string a lease: '0 holds told' with the holds that remain, and how many who wait elsewhere were told that it is free
--       | '2' not all of its keys were the caller's; those that were are gone
--       error UNINIT when the node is not admitted under this run id.
-- Who waits elsewhere left a mark in the lease (ACQUIRE) and is told by PUBLISH fg:wake:MARK 'nonce resource'.
-- Why atomic: a lease that another has taken meanwhile must not be deleted.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, own_mark, how = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local mine, holds, told, leases = 0, 1, 0, {}
  for i = k, k + n - 1 do
    local lease = redis.pcall('GET', KEYS[i])
    if type(lease) == 'table' then lease = '?' end  -- a key of another type: somebody else's
    if lease and string.sub(lease, 1, 32) == nonce then
      mine, leases[i] = mine + 1, lease
      holds = math.max(holds, tonumber(string.match(lease, '^%x+ %d+ %d+ (%d+)')))
    end
  end
  if mine == n and how ~= '1' and (holds > 1 or how == '2') then
    holds = math.max(holds - 1, 1)
    for i = k, k + n - 1 do
      local head, rest = string.match(leases[i], '^(%x+ %d+ %d+ )%d+( .*)$')
      redis.call('SET', KEYS[i], head .. holds .. rest, 'KEEPTTL')
    end
    out[#out + 1] = '0 ' .. holds .. ' 0'
  else
    for i, lease in pairs(leases) do
      redis.call('DEL', KEYS[i])
      if string.find(lease, '\1', 1, true) then
        local text = nonce .. ' ' .. string.sub(KEYS[i], 10)
        for mark in string.gmatch(lease, '\1(%x+)') do
          if mark ~= own_mark then told = told + redis.call('PUBLISH', 'fg:wake:' .. mark, text) end
        end
      end
    end
    out[#out + 1] = mine == n and ('0 0 ' .. told) or '2'
  end
  k, a = k + n, a + 4
end
return out
