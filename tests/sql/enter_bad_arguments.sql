-- Tokens are 1 to 2^53 - 1, resources follow the rules of resource_name, a proof is checked if it is given.
\connect - test_app
select fencing.enter('inventory/sku-1', 0);
select fencing.enter('inventory/sku-1', null);
select fencing.enter('inventory/sku-1', 9007199254740992);
select fencing.enter('inventory/sku-1', 9007199254740991);
select fencing.enter('', 1);
select fencing.enter(null, 1);
select fencing.enter('a//b', 1);
select fencing.enter('/a', 1);
select fencing.enter('a b', 1);
select fencing.enter(E'a\n', 1);
select fencing.enter('straße', 1);
select fencing.enter('A-z.0_9:@/-', 1);
select fencing.enter(repeat('x', 200), 1) as two_hundred;
select fencing.enter(repeat('x', 201), 1) as one_more;
select fencing.enter('inventory/sku-1', 9007199254740991, 'proof');
