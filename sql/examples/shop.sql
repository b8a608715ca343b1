-- The example: a shop that must never sell the same piece twice. Plain SQL, may be run again; needs the schema fencing.
--
-- inventory is protected as inventory/{sku}, orders and their events as orders/{id}.
-- An order changes both and needs one lease on both.

create table if not exists public.inventory (
  sku           text primary key,
  stock         integer not null check (stock >= 0),
  initial_stock integer not null check (initial_stock >= 0),
  note          text,
  price         numeric(12,2) not null default 1.00 check (price >= 0)
) with (fillfactor = 70);
comment on table public.inventory is
  'The stock of the shop. Invariant: initial_stock - stock = the sum of the quantities of all orders that are placed.';
comment on column public.inventory.sku is 'The article; its resource is inventory/{sku}.';
comment on column public.inventory.stock is 'Pieces left.';
comment on column public.inventory.initial_stock is 'Pieces at the beginning, so that the pieces sold can be counted.';
comment on column public.inventory.note is 'Free text.';
comment on column public.inventory.price is 'Price of a piece.';

create table if not exists public.orders (
  id        bigint primary key,
  sku       text not null references public.inventory (sku),
  quantity  integer not null check (quantity > 0),
  status    text not null default 'placed' check (status in ('placed', 'cancelled')),
  placed_at timestamptz not null default clock_timestamp()
);
create index if not exists orders_sku_idx on public.orders (sku);
comment on table public.orders is 'Orders; the resource is orders/{id}.';
comment on column public.orders.id is 'The order, numbered by the caller.';
comment on column public.orders.sku is 'The article.';
comment on column public.orders.quantity is 'Pieces.';
comment on column public.orders.status is 'placed, or cancelled (its pieces are in the stock again).';
comment on column public.orders.placed_at is 'When it was placed.';

create table if not exists public.order_events (
  id       bigint generated always as identity primary key,
  order_id bigint not null references public.orders (id) on delete cascade,
  event    text not null check (event in ('placed', 'cancelled')),
  at       timestamptz not null default clock_timestamp()
);
create index if not exists order_events_order_id_idx on public.order_events (order_id);
comment on table public.order_events is 'What happened to an order; the resource is the order''s, orders/{order_id}.';
comment on column public.order_events.id is 'Numbered by the database.';
comment on column public.order_events.order_id is 'The order.';
comment on column public.order_events.event is 'What happened.';
comment on column public.order_events.at is 'When.';

create or replace function public.place_order(order_id bigint, sku text, quantity integer) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into public.orders (id, sku, quantity) values (place_order.order_id, place_order.sku, place_order.quantity);
  insert into public.order_events (order_id, event) values (place_order.order_id, 'placed');
  update public.inventory i set stock = i.stock - place_order.quantity where i.sku = place_order.sku;
  return place_order.order_id;
end
$$;
comment on function public.place_order(bigint, text, integer) is
  'Places an order and takes the pieces from the stock. '
  'Enter inventory/{sku} and orders/{order_id} first. Returns the order''s id. '
  'SQLSTATE 23514: the stock is too small or the quantity not positive; 23505: the order exists; '
  '23503: no such article. Locks: the order, then the article.';

create or replace function public.cancel_order(order_id bigint) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  cancelled public.orders;
begin
  update public.orders o set status = 'cancelled' where o.id = cancel_order.order_id and o.status = 'placed'
    returning * into cancelled;
  if not found then
    return 0;
  end if;
  insert into public.order_events (order_id, event) values (cancelled.id, 'cancelled');
  update public.inventory i set stock = i.stock + cancelled.quantity where i.sku = cancelled.sku;
  return cancelled.quantity;
end
$$;
comment on function public.cancel_order(bigint) is
  'Cancels an order and returns its pieces to the stock. Enter inventory/{sku} and orders/{order_id} first. '
  'Returns the quantity, 0 where no such order is placed. '
  'Locks: the order, then the article.';

create or replace function public.shop_check()
  returns table (skus bigint, sold bigint, ordered bigint, below_zero bigint, mismatched bigint, holds boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*), coalesce(sum(i.initial_stock - i.stock), 0), coalesce(sum(o.quantity), 0),
    count(*) filter (where i.stock < 0),
         count(*) filter (where i.initial_stock - i.stock <> coalesce(o.quantity, 0)),
         coalesce(bool_and(i.stock >= 0 and i.initial_stock - i.stock = coalesce(o.quantity, 0)), true)
    from public.inventory i
    left join (select x.sku, sum(x.quantity) as quantity from public.orders x where x.status = 'placed'
        group by x.sku) o on o.sku = i.sku;
$$;
comment on function public.shop_check() is
  'Whether the invariants hold: no stock below zero, and for every article the pieces sold are the pieces ordered. '
  'In one snapshot. Locks: none.';

create or replace function public.shop_stock(prefix text, n integer, stock integer) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  added bigint;
begin
  perform fencing.enter(r.resource, greatest(fencing.fence(r.resource), 1))
     from (select 'inventory/' || prefix || k as resource from generate_series(1, n) as k
            where not exists (select from public.inventory i where i.sku = prefix || k)
            order by ('inventory/' || prefix || k) collate "C") r;
  insert into public.inventory (sku, stock, initial_stock)
  select prefix || k, shop_stock.stock, shop_stock.stock from generate_series(1, n) as k
  on conflict on constraint inventory_pkey do nothing;
  get diagnostics added = row_count;
  return added;
end
$$;
comment on function public.shop_stock(text, integer, integer) is
  'For the operator: adds the articles {prefix}1 to {prefix}n with that stock, except those that exist, '
  'and returns how many it added. Locks: the guard rows in order, then the articles.';

revoke all on function public.place_order(bigint, text, integer), public.cancel_order(bigint), public.shop_check(),
  public.shop_stock(text, integer, integer) from public;

select fencing.protect('public.inventory', $$'inventory/' || sku$$);
select fencing.protect('public.orders', $$'orders/' || id::text$$);
select fencing.protect('public.order_events', $$'orders/' || order_id::text$$);

select fencing.expose_table('public.inventory');
select fencing.expose_table('public.orders');
select fencing.expose_table('public.order_events', operations => '{select}');
select fencing.expose_function('public.place_order(bigint, text, integer)');
select fencing.expose_function('public.cancel_order(bigint)');
select fencing.expose_function('public.shop_check()');

select public.shop_stock('sku-', 10, 10);
