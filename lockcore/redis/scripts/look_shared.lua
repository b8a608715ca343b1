-- The last part of LOOK (look.lua and shared_caller.lua are in front of it): looks for shared leases too.
-- KEYS and ARGV  those of look.lua
-- Reply those of look.lua

-- Returns the nonces of the holders in the index that have their leases; nil if there are none.
local function list_holders(place, index)
  local nonces = {}
  for nonce in string.gmatch(index.holders, '\n(%x+)') do
    if redis.call('PTTL', place .. '\t' .. nonce) ~= -2 then nonces[#nonces + 1] = nonce end
  end
  return nonces[1] and 'shared ' .. table.concat(nonces, ' ')
end

for i = #out + 2, #KEYS do
  local key, tail, text = KEYS[i], ARGV[i], nil
  local l = read_lease(key)
  -- The lease that was asked for has ended; its resource has an exclusive lease since.
  if l == FOREIGN and is_shared(key) and redis.call('PTTL', key) == -2 then l = nil end
  local index = l == FOREIGN and not is_shared(key) and read_index(key)
  if index then
    l = nil
    if tail == '*' then
      text = list_holders(key, index)
    elseif tail ~= '' then
      l, key = find_own(key, index, tail)
    end
  end
  if l then text = l == FOREIGN and '?' or redis.call('GET', key) end
  out[#out + 1] = text and '0 ' .. (l and time_left(key, l) or index.ttl) .. ' ' .. text or '2'
end
return out
