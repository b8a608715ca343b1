-- Removes what tables.sql made, because other tests share the stack.
select fencing.unprotect(t::regclass) from unnest('{items,keyless}'::text[]) as t;
select fencing.hide(n) from unnest('{items,keyless,customers,addresses,bills,lines,bills_over,order_names,order_count,'
    'customer_of,echo_doc,sum_of,limit_of,stock_pairs,restock,restock_quietly}'::text[]) as n;
drop function order_names(), order_count(), echo_doc(jsonb), sum_of(integer[]), limit_of(integer, text), stock_pairs(),
  restock_quietly(integer), bills_over(numeric), customer_of(integer), restock(integer, integer);
drop table items, keyless, hidden_notes, lines, bills, addresses, customers;
