-- RELEASE (docs/protocol.md R7, HOLDS): gives back one hold, by its id; where no other is left the lease goes. Never touches a counter.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: resources, nonce, mark of the caller, how ('0': the hold, '1': the whole lease, '2': the hold, as if it had never been asked for), id of the hold
-- Reply one string a lease: '0 told ids\ntombstones\nclosed' with how many who wait elsewhere were told that it is free; no ids: it is gone
--       | '2' not all of its keys were the caller's; the hold is given back on those that were
--       error UNINIT when the node is not admitted under this run id.
-- The id leaves a tombstone, so that it may be said twice, and a HOLD that comes later adds nothing. '2' forgets its idempotency key as well.
-- Who waits elsewhere left a mark in the lease (ACQUIRE) and is told by PUBLISH fg:wake:MARK 'nonce resource'.
-- Why atomic: a lease that another has taken meanwhile must not be deleted.
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end

-- The reply for one lease, whatever holds it has.
local function release(k, n, nonce, own_mark, how, id)
  local mine, told, leases, all = 0, 0, {}, nil
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if l and l.by == nonce then
      mine, leases[i] = mine + 1, l
      if not all then
        all = n == 1 and l or {ids = l.ids, dead = l.dead, closed = l.closed}
      else
        all.ids, all.dead = merge(all.ids, l.ids), merge(all.dead, l.dead)
        if l.closed ~= '' then all.closed = l.closed end
      end
    end
  end
  if not all then all = {ids = '', dead = '', closed = ''} end
  release_id(all, id)
  if how == '1' then all.ids = '' end
  for i, l in pairs(leases) do
    if all.ids == '' then
      redis.call('DEL', KEYS[i])
      if l.marks ~= '' then
        local text = nonce .. ' ' .. string.sub(KEYS[i], 10)
        for mark in string.gmatch(l.marks, '\1(%x+)') do
          if mark ~= own_mark then told = told + redis.call('PUBLISH', 'fg:wake:' .. mark, text) end
        end
      end
    else
      l.ids, l.dead, l.closed = all.ids, all.dead, all.closed
      if how == '2' then
        local kept = ''
        for entry in string.gmatch(l.keys, '[^,]+') do
          if string.sub(entry, -16) ~= id then kept = kept == '' and entry or kept .. ',' .. entry end
        end
        l.keys = kept == '' and '-' or kept
      end
      write_lease(KEYS[i], l)
    end
  end
  return mine == n and '0 ' .. told .. ' ' .. holds_of(all) or '2'
end

local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, own_mark, how, id = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  -- Most leases are on one resource and end like this: with one hold, no tombstone, and nobody who waits elsewhere. A value with the caller's
  -- nonce and id at its ends is the caller's, whatever stands between.
  local text = n == 1 and redis.pcall('GET', KEYS[k])
  if type(text) == 'string' and string.sub(text, 1, 33) == nonce .. ' ' and string.sub(text, -19) == '\n' .. id .. '\n\n' then
    redis.call('DEL', KEYS[k])
    out[#out + 1] = '0 0 \n' .. id .. '\n'
  else
    out[#out + 1] = release(k, n, nonce, own_mark, how, id)
  end
  k, a = k + n, a + 5
end
return out
