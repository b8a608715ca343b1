-- Tokens are 1 to 2^53 - 1, resources follow the rules of name_fault, a proof is checked if it is given.
\connect - test_app
select fencing.enter('inventory/sku-1', 0);
select fencing.enter('inventory/sku-1', null);
select fencing.enter('inventory/sku-1', 9007199254740992);
select fencing.enter('inventory/sku-1', 9007199254740991);
select fencing.enter('', 1);
select fencing.enter(null, 1);
select fencing.enter('a//b', 1);
select fencing.enter('/a', 1);
select fencing.enter('a/', 1);
select fencing.enter(E'a\n', 1);
select fencing.enter(E'a\tb', 1);
select fencing.enter(E'a\x7f', 1);
select fencing.enter(E'a\u0085', 1);
select fencing.enter(E'ü\u009fü', 1);
select fencing.enter(repeat('x', 201), 1) as one_more;
select fencing.enter('ü' || repeat('x', 199), 1) as bytes_count;
-- all other texts are names
select name, fencing.enter(name, 1)
  from unnest(array['A-z.0_9:@/-', 'a b', ' ', 'ann+tag@example.com', '#7', '100%', 'a%20b', 'a*b?[c]{d}', 'a\b', '"a"',
      'it''s', 'a,b', 'a~b', '!a', '=1+1', 'Größe/42', '日本語', '🛒/' || E'\u00a0', '...', 'a/./..']) as t (name);
select fencing.enter(repeat('x', 200), 1) as two_hundred, fencing.enter(repeat('ü', 100), 1) as of_two_bytes;
select fencing.enter('inventory/sku-1', 9007199254740991, 'proof');
