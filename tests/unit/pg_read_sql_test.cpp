#include <gateway/pg/read/table_reader.hpp>

#include <gtest/gtest.h>

using namespace fencegate;
using namespace fencegate::pg;

namespace {

catalog readable_shop() {
    catalog out;
    auto& inventory = out.tables["inventory"];
    inventory.target = "public.inventory";
    inventory.operations = {"select"};
    inventory.columns = {{"sku", "text"}, {"stock", "integer"}, {"odd\"name", "text"}};
    out.tables["letters"].operations = {"insert"};
    auto& list = out.functions["list"];
    list.target = "public.list";
    list.arguments = {{"kind", "text", false}};
    list.returns_set = true;
    list.changes_nothing = true;
    auto& poke = out.functions["poke"];
    poke.target = "public.poke";
    poke.returns_void = true;
    return out;
}

comparison compare_text(std::string column, comparison_operator op, std::string value) {
    comparison out;
    out.column = column;
    out.op = op;
    out.value = boost::json::value(value);
    out.pointer = column;
    out.literal = true;
    return out;
}

table_query everything() {
    table_query out;
    out.table = "inventory";
    out.limit = 10;
    return out;
}

read_statement plan_of(table_query query) {
    return build_read(readable_shop(), {std::move(query), std::nullopt});
}

bool has(const read_statement& plan, std::string_view part) {
    return plan.sql.sql.find(part) != std::string::npos;
}

TEST(read_sql, condition_names_operators_of_the_type) {
    auto known = readable_shop();
    known.tables["inventory"].columns.push_back({"email", "public.citext", false, "", "\"my types\""});
    auto query = everything();
    query.where = {compare_text("email", comparison_operator::neq, "a@b"),
                   compare_text("email", comparison_operator::ilike, "A%"),
                   compare_text("email", comparison_operator::in, "")};
    query.where.back().value = boost::json::array{"a", "b"};
    const auto plan = build_read(known, {std::move(query), std::nullopt});
    ASSERT_TRUE(plan.faults.empty());
    EXPECT_TRUE(has(plan,
                    "t.\"email\" operator(\"my types\".<>) $1 and t.\"email\" operator(\"my types\".~~*) $2 and "
                    "t.\"email\" operator(\"my types\".=) any ($3)"));
}

TEST(read_sql, query_values_bound_and_names_quoted) {
    auto query = everything();
    query.select = {{"sku", "sku"}, {"odd\"name", "x\"y"}};
    query.where = {compare_text("stock", comparison_operator::gte, "3"),
                   compare_text("sku", comparison_operator::like, "'; drop%")};
    query.order = {{"stock", true, false}, {"sku", false, std::nullopt}};
    query.offset = 5;
    query.count = row_count::exact;
    const auto plan = plan_of(query);
    ASSERT_TRUE(plan.faults.empty());
    EXPECT_TRUE(has(plan,
                    "select t.\"sku\", t.\"odd\"\"name\" as \"x\"\"y\" from public.inventory as t where "
                    "t.\"stock\" >= $1 and t.\"sku\" ~~ $2 order by t.\"stock\" desc nulls last, t.\"sku\" asc "
                    "limit $3::bigint offset $4::bigint"));
    EXPECT_TRUE(has(plan, "(select count(*) from public.inventory as t where t.\"stock\" >= $1 and t.\"sku\" ~~ $2)"));
    EXPECT_FALSE(has(plan, "drop"));
    EXPECT_EQ(plan.sql.parameters, (compat::parameters{"3", "'; drop%", "10", "5"}));
}

TEST(read_sql, nested_groups_are_in_parentheses) {
    auto query = everything();
    comparison any;
    any.op = comparison_operator::any_of;
    any.negated = true;
    any.members = {compare_text("stock", comparison_operator::lt, "1"),
                   compare_text("sku", comparison_operator::neq, "a")};
    any.members[1].negated = true;
    query.where = {any, compare_text("stock", comparison_operator::gt, "0")};
    EXPECT_TRUE(has(plan_of(query), " where (not (t.\"stock\" < $1 or (not t.\"sku\" <> $2))) and t.\"stock\" > $3"));
}

TEST(read_sql, unknown_names_fault_names_parameter) {
    auto query = everything();
    query.select = {{"nope", "nope"}};
    query.where = {compare_text("gone", comparison_operator::eq, "1")};
    query.order = {{"never", false, std::nullopt}};
    const auto plan = plan_of(query);
    ASSERT_EQ(plan.faults.size(), 3U);
    EXPECT_EQ(plan.faults[0].pointer, "select");
    EXPECT_EQ(plan.faults[1].pointer, "gone");
    EXPECT_EQ(plan.faults[2].pointer, "order");
    EXPECT_TRUE(plan.unknown_name);
    for (const char* table : {"hidden", "letters"}) {
        query.table = table;
        EXPECT_EQ(plan_of(query).faults.at(0).pointer, "table");
    }
}

/// Orders that belong to a customer and may be paid by another, and a passport for each customer.
catalog customers() {
    catalog out;
    auto& customers = out.tables["customers"];
    customers.target = "public.customers";
    customers.operations = {"select"};
    customers.columns = {{"id", "integer"}, {"boss", "integer"}};
    customers.foreign_keys = {{"bosses", "public.customers", {"boss"}, {"id"}, false}};
    auto& orders = out.tables["orders"];
    orders.target = "public.orders";
    orders.operations = {"select"};
    orders.columns = {{"id", "integer"}, {"customer", "integer"}, {"payer", "integer"}};
    orders.foreign_keys = {{"of_customer", "public.customers", {"customer"}, {"id"}, false},
                           {"of_payer", "public.customers", {"payer"}, {"id"}, false},
                           {"of_hidden", "public.customers", {"secret"}, {"id"}, false}};
    auto& passports = out.tables["passports"];
    passports.target = "public.passports";
    passports.operations = {"select"};
    passports.columns = {{"customer", "integer"}};
    passports.foreign_keys = {{"passport", "public.customers", {"customer"}, {"id"}, true}};
    return out;
}

selected_column embed(std::string table, std::string hint, bool inner = false) {
    selected_column out{table, table};
    out.embedded = std::make_shared<embedded_table>();
    out.embedded->hint = hint;
    out.embedded->inner = inner;
    out.embedded->pointer_prefix = table + ".";
    out.embedded->rows.limit = 9;
    return out;
}

read_statement embedded_in(std::string table, selected_column item) {
    table_query query;
    query.table = table;
    query.limit = 10;
    query.select = {{"id", "id"}, std::move(item)};
    if (table == "passports") query.select.erase(query.select.begin());
    return build_read(customers(), {std::move(query), std::nullopt});
}

TEST(read_sql, embedded_rows_joined_by_foreign_key) {
    EXPECT_TRUE(has(embedded_in("orders", embed("customers", "of_payer")),
                    "(select row_to_json(fencegate_row) from (select t1.\"id\", t1.\"boss\" from public.customers as "
                    "t1 where t1.\"id\" = t.\"payer\" limit $1::bigint offset $2::bigint) as fencegate_row) as "
                    "\"customers\""));
    auto item = embed("orders", "customer");
    item.embedded->rows.where = {compare_text("id", comparison_operator::gt, "5")};
    item.embedded->rows.order = {{"id", true, std::nullopt}};
    const auto plan = embedded_in("customers", item);
    EXPECT_TRUE(has(plan,
                    "(select coalesce(json_agg(row_to_json(fencegate_row)), '[]'::json) from (select t1.\"id\", "
                    "t1.\"customer\", t1.\"payer\" from public.orders as t1 where t1.\"customer\" = t.\"id\" and "
                    "t1.\"id\" > $1 order by t1.\"id\" desc limit $2::bigint offset $3::bigint) as fencegate_row)"));
    EXPECT_EQ(plan.sql.parameters.at(0), "5");
    EXPECT_TRUE(has(embedded_in("customers", embed("passports", "")), "(select row_to_json(fencegate_row) from"));
}

TEST(read_sql, embedded_rows_joined_by_operator_of_type) {
    auto known = customers();
    known.tables["passports"].columns[0].operators = "\"my types\"";
    table_query query;
    query.table = "customers";
    query.select = {embed("passports", "")};
    EXPECT_TRUE(
        has(build_read(known, {query, std::nullopt}), "where t1.\"customer\" operator(\"my types\".=) t.\"id\""));
}

TEST(read_sql, rows_and_embedded_rows_of_rows_limited_at_each_level) {
    const auto limits = [](const read_statement& plan) {
        std::size_t count = 0;
        constexpr std::string_view limit = "fencegate_bytes > 67108864";
        for (auto at = plan.sql.sql.find(limit); at != std::string::npos; at = plan.sql.sql.find(limit, at + 1))
            ++count;
        return count;
    };
    EXPECT_EQ(limits(plan_of(everything())), 1U);
    auto item = embed("orders", "of_customer");
    EXPECT_EQ(limits(embedded_in("customers", item)), 1U);
    item.embedded->rows.select = {{"id", "id"}, embed("customers", "of_payer")};
    const auto plan = embedded_in("customers", item);
    EXPECT_EQ(limits(plan), 2U);
    EXPECT_TRUE(has(plan, "string_agg(fencegate_item, ',')"));
    EXPECT_TRUE(has(plan, "json_agg(fencegate_item)"));
}

TEST(read_sql, embedded_inner_leaves_out_rows_without) {
    auto item = embed("orders", "of_customer", true);
    item.embedded->rows.select = {{"id", "id"}, embed("customers", "of_payer", true)};
    const auto plan = embedded_in("customers", item);
    ASSERT_TRUE(plan.faults.empty());
    EXPECT_TRUE(has(plan,
                    "from public.customers as t where exists (select from public.orders as t4 where t4.\"customer\" = "
                    "t.\"id\" and exists (select from public.customers as t5 where t5.\"id\" = t4.\"payer\"))"));
}

TEST(read_sql, embedded_table_ambiguous_or_apart_refused) {
    const auto several = embedded_in("orders", embed("customers", ""));
    ASSERT_EQ(several.faults.size(), 1U);
    EXPECT_EQ(several.code, fault_code::several_relationships);
    EXPECT_NE(several.faults[0].detail.find("customers!of_customer, customers!of_payer"), std::string::npos);
    for (const auto& [table, item] :
         {std::pair{"orders", embed("customers", "secret")}, std::pair{"orders", embed("customers", "of_hidden")},
          std::pair{"passports", embed("orders", "")}, std::pair{"orders", embed("gone", "")}})
        EXPECT_EQ(embedded_in(table, item).faults.size(), 1U) << item.column;
    EXPECT_EQ(embedded_in("passports", embed("orders", "")).code, fault_code::no_relationship);
    EXPECT_EQ(embedded_in("customers", embed("customers", "")).code, fault_code::several_relationships);
    EXPECT_TRUE(has(embedded_in("customers", embed("customers", "boss")), "where t1.\"id\" = t.\"boss\" limit"));
}

TEST(read_sql, count_by_planner_has_parameters_of_its_own) {
    auto query = everything();
    query.where = {compare_text("stock", comparison_operator::gte, "3")};
    query.count = row_count::estimated;
    query.counted_max = 100;
    const auto plan = plan_of(query);
    EXPECT_TRUE(has(plan,
                    "(select count(*) from (select from public.inventory as t where t.\"stock\" >= $1 limit "
                    "$4::bigint) as fencegate_counted) as total"));
    EXPECT_EQ(plan.sql.parameters.at(3), "101");
    EXPECT_EQ(plan.estimate.sql, "explain (format json) select from public.inventory as t where t.\"stock\" >= $1");
    EXPECT_EQ(plan.estimate.parameters, compat::parameters{"3"});
    EXPECT_EQ(read_estimate(R"([{"Plan": {"Node Type": "Seq Scan", "Plan Rows": 42}}])"), 42);
    EXPECT_ANY_THROW(read_estimate("[]"));
    EXPECT_EQ(read_estimate(R"([{"Plan": {"Plan Rows": 1)" + std::string(100, '0') + "}}]"), 1LL << 53);
    std::string deep = R"([{"Plan": {"Plan Rows": 7)";
    for (int i = 0; i < 100; ++i)
        deep += R"(, "Plans": [{"Node Type": "Hash Join")";
    for (int i = 0; i < 100; ++i)
        deep += "}]";
    EXPECT_EQ(read_estimate(deep + "}}]"), 7);
}

TEST(read_sql, count_by_planner_exact_where_rows_are_hidden) {
    for (const auto count : {row_count::planned, row_count::estimated}) {
        auto query = everything();
        query.count = count;
        auto known = readable_shop();
        known.tables["inventory"].hides_rows = true;
        const auto plan = build_read(known, {query, std::nullopt});
        EXPECT_TRUE(has(plan, "(select count(*) from public.inventory as t) as total"));
        EXPECT_TRUE(plan.estimate.sql.empty());
        table_query outer;
        outer.table = "customers";
        outer.select = {embed("orders", "of_customer", true)};
        outer.count = count;
        known = customers();
        EXPECT_FALSE(build_read(known, {outer, std::nullopt}).estimate.sql.empty());
        known.tables["orders"].hides_rows = true;
        EXPECT_TRUE(build_read(known, {outer, std::nullopt}).estimate.sql.empty());
    }
}

TEST(read_sql, csv_names_are_bound) {
    auto query = everything();
    query.select = {{"sku", "a,\"b"}};
    const auto plan = build_read(readable_shop(), {query, std::nullopt, {}, row_format::csv});
    EXPECT_EQ(plan.sql.parameters.back(), "\"a,\"\"b\"");
    EXPECT_TRUE(has(plan, "format('%s', fencegate_row.\"a,\"\"b\")"));
}

TEST(read_sql, parameter_of_function_is_argument_or_condition) {
    auto known = readable_shop();
    known.functions["list"].columns = {{"kind", "text"}, {"n", "integer"}};
    known.functions["list"].returns_row = true;
    function_query query;
    query.function = "list";
    query.limit = query.rows.limit = 7;
    query.rows.where = {compare_text("kind", comparison_operator::eq, "x"),
                        compare_text("n", comparison_operator::gt, "1")};
    query.parameters = {{"kind", "eq.x", {}}, {"n", "gt.1", {}}};
    const auto plan = build_read(known, {query, std::nullopt});
    ASSERT_TRUE(plan.faults.empty());
    EXPECT_TRUE(has(plan, "public.list(\"kind\" => $1::text) as t where t.\"n\" > $2"));
    EXPECT_EQ(plan.sql.parameters.at(0), "eq.x");
    query.parameters.push_back({"m", "1", "has no operator"});
    EXPECT_EQ(build_read(known, {query, std::nullopt}).faults.at(0).pointer, "m");
}

TEST(read_sql, selection_of_single_value_refused) {
    function_query query;
    query.function = "poke";
    query.limit = 7;
    query.rows.limit = 0;
    query.rows.order = {{"a", false, std::nullopt}};
    const auto plan = build_read(readable_shop(), {query, std::nullopt, {}, row_format::csv});
    ASSERT_EQ(plan.faults.size(), 3U);
    EXPECT_EQ(plan.faults[0].pointer, "Accept");
    EXPECT_EQ(plan.faults[1].pointer, "order");
    EXPECT_EQ(plan.faults[2].pointer, "limit");
    EXPECT_EQ(failure_for_faults(plan, errc::unprocessable, "").code, errc::not_acceptable);
}

TEST(read_sql, stable_function_read_with_limit) {
    function_query query;
    query.function = "list";
    query.args = {{"kind", boost::json::value("x"), "kind", true}};
    query.limit = query.rows.limit = 7;
    const auto plan = build_read(readable_shop(), {query, std::nullopt});
    EXPECT_TRUE(has(plan, "public.list(\"kind\" => $1::text) as fencegate_item limit $2::bigint"));
    EXPECT_FALSE(plan.needs_fence);
    query.args.clear();
    EXPECT_FALSE(build_read(readable_shop(), {query, std::nullopt}).faults.empty());
}

TEST(read_sql, volatile_function_needs_fence) {
    function_query query;
    query.function = "poke";
    const auto plan = build_read(readable_shop(), {query, std::nullopt});
    EXPECT_TRUE(plan.needs_fence);
    EXPECT_EQ(plan.shape, answer_shape::nothing);
}

}  // namespace
