#include <gateway/domain/exact_number.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <gtest/gtest.h>
#include <boost/json/parse.hpp>

#include <cstdlib>
#include <limits>

using namespace fencegate;
using namespace fencegate::pg;

namespace {

catalog shop() {
    catalog out;
    auto& inventory = out.tables["inventory"];
    inventory.target = "public.inventory";
    inventory.operations = {"select", "insert", "update", "delete"};
    inventory.columns = {{"sku", "text"},
                         {"stock", "integer"},
                         {"price", "numeric(12,2)"},
                         {"tags", "text[]"},
                         {"extra", "jsonb"},
                         {"due", "date"},
                         {"seen", "timestamp(3) with time zone"},
                         {"place", "public.spot"},
                         {"places", "public.spot[]"},
                         {"odd\"name", "character varying(3)"}};
    auto& orders = out.tables["orders"];
    orders.target = "public.orders";
    orders.operations = {"insert"};
    orders.columns = {{"id", "bigint"}};
    auto& bills = out.tables["bills"];
    bills.target = "public.bills";
    bills.operations = {"insert", "select"};
    bills.columns = orders.columns;
    auto& notes = out.tables["notes"];
    notes.operations = {"update", "delete"};
    notes.columns = orders.columns;
    auto& place = out.functions["place"];
    place.target = "public.place_order";
    place.arguments = {
        {"order_id", "bigint", false}, {"code", "character", true}, {"flags", "bit", true}, {"doc", "json", true}};
    auto& list = out.functions["list"];
    list.target = "public.list";
    list.returns_set = true;
    auto& poke = out.functions["poke"];
    poke.target = "public.poke";
    poke.returns_void = true;
    return out;
}

comparison where(std::string column, comparison_operator op, boost::json::value value) {
    return {column, op, std::move(value), "/operations/0/where/" + column};
}

assignment put(std::string name, boost::json::value value) {
    return {name, std::move(value), "/operations/0/set/" + name};
}

update_operation update_of(std::vector<assignment> set, std::vector<assignment> add = {}) {
    update_operation op;
    op.table = "inventory";
    op.where = {where("sku", comparison_operator::eq, "sku-1")};
    op.set = std::move(set);
    op.add = std::move(add);
    return op;
}

write_statements plan_of(operation op, bool return_rows = false) {
    return build_statements(shop(), {std::move(op)}, {return_rows});
}

/// Returns the plan of a single operation, which must have no faults.
operation_statement good(operation op, bool return_rows = false) {
    auto plan = plan_of(std::move(op), return_rows);
    for (const auto& fault : plan.faults)
        ADD_FAILURE() << fault.pointer << ": " << fault.detail;
    return plan.operations.at(0);
}

/// Returns the only fault of a single operation.
field_error bad(operation op, bool return_rows = false) {
    auto plan = plan_of(std::move(op), return_rows);
    EXPECT_EQ(plan.faults.size(), 1u);
    return plan.faults.empty() ? field_error{} : plan.faults[0];
}

/// What gives `inner`'s column json in pieces where it is not too large, and else undoes the write.
std::string limited(const std::string& inner, const std::vector<std::string>& columns = {}) {
    const std::string before = columns.empty() ? "" : columns.front() + ", ";
    return split_into_pieces("select " + before +
                                 "case when octet_length(json) > 67108864 then "
                                 "fencing.refuse_answer(octet_length(json)) else json end as json from (" +
                                 inner + ") as fencegate_answer",
                             columns);
}

/// Returns the text of the rows of a subquery, joined; at the row with which they are too large it is refused.
std::string joined(const std::string& row, const std::string& rows) {
    return "'[' || coalesce(string_agg(fencegate_item, ','), '') || ']' as json from (select case when fencegate_bytes "
           "> "
           "67108864 then fencing.refuse_answer(fencegate_bytes::bigint)::text else fencegate_item end as "
           "fencegate_item "
           "from (select fencegate_item, sum(pg_column_size(fencegate_item)) over (rows unbounded preceding) as "
           "fencegate_bytes from (select coalesce(to_json(" +
           row + ")::text, 'null') as fencegate_item from " + rows +
           " offset 0) as fencegate_items) as fencegate_sizes) as fencegate_row";
}

std::string condition_of(comparison c) {
    delete_operation op;
    op.table = "inventory";
    op.where = {std::move(c)};
    const auto sql = good(op).sql.sql;
    return sql.substr(sql.find(" where ") + 7);
}

/// How the value is bound for the column in `set`.
std::optional<std::string> bound_in(const std::string& column, boost::json::value value) {
    return good(update_of({put(column, std::move(value))})).sql.parameters.at(0);
}

}  // namespace

TEST(write_sql, update_values_bound_and_names_quoted) {
    auto op = update_of({put("odd\"name", "x")}, {put("stock", -3)});
    op.where.push_back(where("stock", comparison_operator::gte, 3));
    const auto planned = good(op);
    EXPECT_EQ(planned.sql.sql,
              "update public.inventory as t set \"odd\"\"name\" = $1, \"stock\" = t.\"stock\" + $2::integer "
              "where t.\"sku\" = $3 and t.\"stock\" >= $4");
    EXPECT_EQ(planned.sql.parameters, (compat::parameters{"x", "-3", "sku-1", "3"}));
    EXPECT_EQ(planned.shape, answer_shape::affected);
}

TEST(write_sql, sql_text_stays_a_value) {
    const auto planned = good(update_of({put("sku", "'; drop table inventory; --")}));
    EXPECT_EQ(planned.sql.sql.find("drop"), std::string::npos);
    EXPECT_EQ(planned.sql.parameters.at(0), "'; drop table inventory; --");
}

TEST(write_sql, returned_rows_in_order_of_columns) {
    insert_operation op;
    op.table = "bills";
    op.values = {put("id", 1001)};
    op.expect_rows = 1;
    const auto planned = good(op, true);
    EXPECT_EQ(planned.sql.sql,
              "with fencegate_changed as (insert into public.bills as t (\"id\") values ($1) returning t.\"id\") " +
                  limited("select count(*) as rows, " + joined("fencegate_changed", "fencegate_changed"), {"rows"}));
    EXPECT_EQ(planned.shape, answer_shape::rows);
    EXPECT_EQ(planned.expect_rows, 1);
}

TEST(write_sql, read_without_select_refused_by_name) {
    insert_operation conflict;
    conflict.table = "orders";
    conflict.values = {put("id", 1)};
    conflict.on_conflict = conflict_rule{false, {"id"}, "on_conflict"};
    insert_operation rows = conflict;
    rows.on_conflict->columns = {};
    EXPECT_EQ(bad(conflict).pointer, "/operations/0/insert");
    EXPECT_EQ(bad(rows, true).pointer, "/operations/0/insert");
    EXPECT_NE(good(rows).sql.sql, "");
    EXPECT_FALSE(good(rows).changes_rows_only) << "another write's row may have been the cause";
    delete_operation op;
    op.table = "notes";
    op.where = {where("id", comparison_operator::eq, 1)};
    EXPECT_EQ(bad(op).pointer, "/operations/0/delete");
    auto update = update_of({put("id", 1)});
    update.table = "notes";
    update.where = op.where;
    EXPECT_EQ(bad(update).pointer, "/operations/0/update");
}

TEST(write_sql, upsert_without_columns_uses_primary_key) {
    insert_operation op;
    op.table = "inventory";
    op.values = {put("sku", "a"), put("stock", 1)};
    op.on_conflict = conflict_rule{true, {}, "on_conflict"};
    EXPECT_EQ(bad(op).pointer, "on_conflict");
    auto known = shop();
    known.tables["inventory"].primary_key = {"sku"};
    const auto plan = build_statements(known, {op}, {});
    ASSERT_TRUE(plan.faults.empty());
    EXPECT_EQ(plan.operations[0].sql.sql,
              "insert into public.inventory as t (\"sku\", \"stock\") values ($1, $2) on conflict (\"sku\") do update "
              "set \"stock\" = excluded.\"stock\"");
    known.tables["inventory"].primary_key = {"hidden"};
    const auto fault = build_statements(known, {op}, {}).faults.at(0);
    EXPECT_EQ(fault.pointer, "on_conflict");
    EXPECT_EQ(fault.detail.find("hidden"), std::string::npos);
}

TEST(write_sql, rows_with_missing_columns_null_or_default) {
    insert_operation op;
    op.table = "inventory";
    op.values = {put("sku", "a"), put("stock", nullptr)};
    op.rows = boost::json::parse(R"([{"sku":"a","other":1},{"stock":2}])").as_array();
    EXPECT_EQ(good(op).sql.parameters.at(0), R"([{"sku":"a","stock":null},{"sku":null,"stock":2}])");
    op.missing_default = true;
    const auto planned = good(op);
    EXPECT_EQ(planned.sql.sql,
              "insert into public.inventory as t (\"sku\", \"stock\") values ($1, default), (default, $2)");
    EXPECT_EQ(planned.sql.parameters, (compat::parameters{"a", "2"}));
}

TEST(write_sql, call_with_selection_counts_rows_of_set) {
    auto known = shop();
    known.functions["list"].columns = {{"n", "integer"}, {"word", "text"}};
    known.functions["list"].returns_row = true;
    call_operation op;
    op.function = "list";
    op.rows.emplace().where = {where("n", comparison_operator::gt, 1)};
    op.rows->select = {{"word", "w"}};
    op.rows->limit = 5;
    op.expect_rows = 1;
    op.rows_max = 3;
    const auto plan = build_statements(known, {op}, {});
    ASSERT_TRUE(plan.faults.empty());
    const auto& planned = plan.operations[0];
    EXPECT_NE(planned.sql.sql.find("with fencegate_set as materialized (select * from public.list() as t where "
                                   "t.\"n\" > $1)"),
              std::string::npos);
    EXPECT_NE(planned.sql.sql.find("(select t.\"word\" as \"w\" from fencegate_set as t limit $2::bigint"),
              std::string::npos);
    EXPECT_EQ(planned.shape, answer_shape::rows);
    EXPECT_EQ(planned.expect_rows, 1);
    EXPECT_EQ(planned.rows_max, 3);
    op.function = "poke";
    EXPECT_EQ(build_statements(known, {op}, {}).faults.size(), 3U);  // a condition, select and max-affected
    call_operation single;
    single.function = "place";
    single.args = {put("order_id", 1)};
    const auto stripped = build_statements(known, {single}, {false, {}, row_format::json_without_nulls});
    EXPECT_NE(stripped.operations[0].sql.sql.find("json_strip_nulls(to_json(public.place_order("), std::string::npos);
}

TEST(write_sql, insert_without_values_uses_defaults) {
    insert_operation op;
    op.table = "orders";
    EXPECT_EQ(good(op).sql.sql, "insert into public.orders as t default values");
}

TEST(write_sql, call_arguments_named_and_cast_without_length) {
    call_operation op;
    op.function = "place";
    op.args = {put("order_id", 7), put("code", "abc"), put("flags", "101"), put("doc", "text")};
    const auto planned = good(op);
    EXPECT_EQ(planned.sql.sql,
              limited("select to_json(public.place_order(\"order_id\" => $1::bigint, \"code\" => $2::bpchar, "
                      "\"flags\" => $3::\"bit\", \"doc\" => $4::json))::text as json offset 0"));
    EXPECT_EQ(planned.sql.parameters.at(3), "\"text\"");
    EXPECT_EQ(planned.shape, answer_shape::value);
}

TEST(write_sql, call_shape_follows_the_function) {
    call_operation list;
    list.function = "list";
    EXPECT_EQ(good(list).sql.sql, limited("select " + joined("fencegate_item", "public.list() as fencegate_item")));
    call_operation poke;
    poke.function = "poke";
    EXPECT_EQ(good(poke).sql.sql, "select from public.poke()");
    EXPECT_EQ(good(poke).shape, answer_shape::nothing);
}

TEST(write_sql, numbers_read_back_the_same) {
    EXPECT_EQ(bound_in("stock", 9223372036854775807), "9223372036854775807");
    EXPECT_EQ(bound_in("stock", 18446744073709551615u), "18446744073709551615");
    EXPECT_EQ(bound_in("price", 0.1), "0.1");
    EXPECT_EQ(bound_in("price", 5.0), "5");
    EXPECT_EQ(bound_in("price", 1e5), "100000");
    EXPECT_EQ(std::strtod(bound_in("price", 1.7976931348623157e308)->c_str(), nullptr), 1.7976931348623157e308);
    EXPECT_EQ(std::strtod(bound_in("price", 5e-324)->c_str(), nullptr), 5e-324);
}

TEST(write_sql, number_out_of_range_is_refused) {
    EXPECT_EQ(bad(update_of({put("price", std::numeric_limits<double>::infinity())})).pointer,
              "/operations/0/set/price");
}

TEST(write_sql, scalars_null_and_json_are_bound) {
    EXPECT_EQ(bound_in("sku", nullptr), std::nullopt);
    EXPECT_EQ(bound_in("sku", true), "true");
    EXPECT_EQ(bound_in("extra", nullptr), std::nullopt);
    EXPECT_EQ(bound_in("extra", "a"), "\"a\"");
    EXPECT_EQ(bound_in("extra", boost::json::parse(R"({"a": [1, null]})")), R"({"a":[1,null]})");
}

TEST(write_sql, arrays_bound_as_quoted_literals) {
    EXPECT_EQ(bound_in("tags", boost::json::parse(R"(["a", "b\"c\\d", null, "NULL", 1, "x,y{}"])")),
              R"({"a","b\"c\\d",NULL,"NULL","1","x,y{}"})");
    EXPECT_EQ(bound_in("tags", boost::json::parse(R"([["a"], ["b"]])")), R"({{"a"},{"b"}})");
    EXPECT_EQ(bound_in("tags", boost::json::parse("[]")), "{}");
}

TEST(write_sql, composite_types_read_from_json) {
    const auto planned = good(update_of({put("place", boost::json::parse(R"({"x": 1})"))}));
    EXPECT_NE(planned.sql.sql.find("\"place\" = (select v from json_to_record($1::json) as r(v public.spot))"),
              std::string::npos);
    EXPECT_EQ(planned.sql.parameters.at(0), R"({"v":{"x":1}})");
    const auto many = good(update_of({put("places", boost::json::parse(R"([{"x": 1}, null])"))}));
    EXPECT_NE(many.sql.sql.find("(select v from json_to_record($1::json) as r(v public.spot[]))"), std::string::npos);
}

TEST(write_sql, unfit_values_fault_has_pointer) {
    EXPECT_EQ(bad(update_of({put("sku", boost::json::parse("[1]"))})).pointer, "/operations/0/set/sku");
    EXPECT_EQ(bad(update_of({put("stock", boost::json::parse("{}"))})).pointer, "/operations/0/set/stock");
    EXPECT_EQ(bad(update_of({put("sku", boost::json::parse(R"("a\u0000b")"))})).pointer, "/operations/0/set/sku");
    EXPECT_EQ(bad(update_of({}, {put("stock", nullptr)})).pointer, "/operations/0/set/stock");
}

TEST(write_sql, comparisons_use_sql_operators) {
    using op = comparison_operator;
    EXPECT_EQ(condition_of(where("stock", op::eq, 1)), "t.\"stock\" = $1");
    EXPECT_EQ(condition_of(where("stock", op::neq, 1)), "t.\"stock\" <> $1");
    EXPECT_EQ(condition_of(where("stock", op::lt, 1)), "t.\"stock\" < $1");
    EXPECT_EQ(condition_of(where("stock", op::lte, 1)), "t.\"stock\" <= $1");
    EXPECT_EQ(condition_of(where("stock", op::gt, 1)), "t.\"stock\" > $1");
    EXPECT_EQ(condition_of(where("stock", op::gte, 1)), "t.\"stock\" >= $1");
    EXPECT_EQ(condition_of(where("stock", op::in, boost::json::parse("[1,2]"))), "t.\"stock\" = any ($1)");
    EXPECT_EQ(condition_of(where("stock", op::in, boost::json::parse("[]"))), "false");
    EXPECT_EQ(condition_of(where("extra", op::in, boost::json::parse("[1,{}]"))), "t.\"extra\" in ($1, $2)");
    EXPECT_EQ(condition_of(where("tags", op::in, boost::json::parse(R"([["a"],["b"]])"))), "t.\"tags\" in ($1, $2)");
    EXPECT_EQ(condition_of(where("stock", op::is, nullptr)), "t.\"stock\" is null");
    EXPECT_EQ(condition_of(where("stock", op::is, true)), "t.\"stock\" is true");
    EXPECT_EQ(condition_of(where("stock", op::is, false)), "t.\"stock\" is false");
    EXPECT_EQ(condition_of(where("stock", op::is, "unknown")), "t.\"stock\" is unknown");
}

TEST(write_sql, comparison_with_null_is_refused) {
    for (const auto op : {comparison_operator::eq, comparison_operator::neq, comparison_operator::lt}) {
        delete_operation gone;
        gone.table = "inventory";
        gone.where = {where("stock", op, nullptr)};
        const auto fault = bad(gone);
        EXPECT_EQ(fault.pointer, "/operations/0/where/stock");
        EXPECT_NE(fault.detail.find("\"is\""), std::string::npos);
    }
}

TEST(write_sql, comparison_with_unfit_operand_is_refused) {
    for (const auto& c : {where("stock", comparison_operator::in, 1),
                          where("stock", comparison_operator::in, boost::json::parse("[null]")),
                          where("stock", comparison_operator::is, 1)}) {
        delete_operation gone;
        gone.table = "inventory";
        gone.where = {c};
        EXPECT_EQ(bad(gone).pointer, "/operations/0/where/stock");
    }
}

TEST(write_sql, add_to_time_takes_interval) {
    EXPECT_NE(good(update_of({}, {put("seen", "1 hour")})).sql.sql.find("+ $1::interval"), std::string::npos);
    EXPECT_NE(good(update_of({}, {put("due", 3)})).sql.sql.find("+ $1::integer"), std::string::npos);
    EXPECT_NE(good(update_of({}, {put("price", 0.005)})).sql.sql.find("+ $1::numeric where"), std::string::npos);
}

TEST(write_sql, add_to_type_without_addition_is_refused) {
    for (const auto* column : {"sku", "extra", "odd\"name"}) {
        const auto fault = bad(update_of({}, {put(column, "1")}));
        EXPECT_EQ(fault.pointer, std::string("/operations/0/set/") + column);
        EXPECT_NE(fault.detail.find("`add` needs a column of numbers"), std::string::npos) << fault.detail;
        EXPECT_NE(fault.detail.find("use `set`"), std::string::npos) << fault.detail;
    }
    good(update_of({}, {put("tags", "{1}"), put("place", "1")}));  // an extension may have the operator
}

TEST(write_sql, change_without_where_is_refused) {
    update_operation op = update_of({put("stock", 1)});
    op.where.clear();
    EXPECT_EQ(bad(op).pointer, "/operations/0/where");
}

TEST(write_sql, unknown_names_fault_and_refresh_catalog) {
    insert_operation unknown_table;
    unknown_table.table = "nothing";
    delete_operation not_exposed;
    not_exposed.table = "orders";
    not_exposed.where = {where("id", comparison_operator::eq, 1)};
    call_operation unknown_function;
    unknown_function.function = "nothing";
    call_operation arguments;
    arguments.function = "place";
    arguments.args = {put("wrong", 1)};
    const auto plan = build_statements(
        shop(), {unknown_table, not_exposed, unknown_function, arguments, update_of({put("colour", 1)})}, {});
    EXPECT_TRUE(plan.unknown_name);
    std::vector<std::string> pointers;
    for (const auto& fault : plan.faults)
        pointers.push_back(fault.pointer);
    EXPECT_EQ(pointers,
              (std::vector<std::string>{"/operations/0/insert", "/operations/1/delete", "/operations/2/call",
                                        "/operations/0/set/wrong", "/operations/3/args", "/operations/0/set/colour"}));
    EXPECT_EQ(refusal_of(plan).code, errc::unprocessable);
    EXPECT_EQ(refusal_of(plan).errors.size(), 6u);
}

TEST(write_sql, hostile_names_are_no_columns_tables_or_functions) {
    for (const std::string name :
         {"stock = 0 --", "stock\" = 0; drop table inventory; --", "stock; delete from orders", "stock'", "stock)",
          "inventory.stock", "public.inventory", "a/b", "a~b", "*", "STOCK", "ctid", "xmin", "tableoid", "stöck", ""}) {
        EXPECT_EQ(bad(update_of({put(name, 0)})).pointer, "/operations/0/set/" + name);
        EXPECT_EQ(bad(update_of({}, {put(name, 0)})).pointer, "/operations/0/set/" + name);
        auto update = update_of({put("stock", 0)});
        update.where.push_back(where(name, comparison_operator::gte, 0));
        EXPECT_EQ(bad(update).pointer, "/operations/0/where/" + name);
        insert_operation insert;
        insert.table = "inventory";
        insert.values = {put("sku", "x"), put(name, 0)};
        EXPECT_EQ(bad(insert).pointer, "/operations/0/set/" + name);
        insert.table = name;
        EXPECT_EQ(bad(insert).pointer, "/operations/0/insert");
        call_operation call;
        call.function = name;
        EXPECT_EQ(bad(call).pointer, "/operations/0/call");
    }
}

TEST(write_sql, cast_types_have_no_length) {
    EXPECT_EQ(cast_type("character varying(3)"), "character varying");
    EXPECT_EQ(cast_type("numeric(12,2)[]"), "numeric[]");
    EXPECT_EQ(cast_type("timestamp(3) with time zone"), "timestamp with time zone");
    EXPECT_EQ(cast_type("character(8)"), "bpchar");
    EXPECT_EQ(cast_type("interval day to second(3)"), "interval");
    EXPECT_EQ(cast_type("public.\"odd(type)\""), "public.\"odd(type)\"");
}

TEST(write_sql, exact_number_digits_are_bound) {
    EXPECT_EQ(bound_in("price", exact_number("1.50")), "1.50");
    EXPECT_EQ(bound_in("price", exact_number("123456789012345678901")), "123456789012345678901");
    EXPECT_EQ(bound_in("stock", exact_number("3.0")), "3");
    EXPECT_EQ(bound_in("stock", exact_number("1e5")), "100000");
    EXPECT_EQ(bound_in("stock", exact_number("1.5")), "1.5");
    EXPECT_EQ(bound_in("stock", exact_number("12345678901234567.0")), "12345678901234567.0");
    EXPECT_EQ(bound_in("stock", exact_number("-0")), "-0");
    boost::json::object doc;
    doc["a"] = exact_number("1.50");
    doc["b\""] = boost::json::array{exact_number("1e400"), "x", nullptr};
    EXPECT_EQ(bound_in("extra", doc), R"({"a":1.50,"b\"":[1e400,"x",null]})");
    EXPECT_EQ(bound_in("tags", boost::json::array{exact_number("1.50")}), R"({"1.50"})");
}
