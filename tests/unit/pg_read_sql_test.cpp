#include <gateway/pg/read/read_sql.hpp>

#include <gtest/gtest.h>

using namespace fencegate;
using namespace fencegate::pg;

namespace {

catalog shop() {
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

comparison where(std::string column, comparison_operator op, std::string value) {
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

read_plan plan_of(table_query query) {
    return plan_read(shop(), {std::move(query), std::nullopt});
}

bool has(const read_plan& plan, std::string_view part) {
    return plan.sql.sql.find(part) != std::string::npos;
}

TEST(read_sql, condition_names_operators_of_the_type) {
    auto known = shop();
    known.tables["inventory"].columns.push_back({"email", "public.citext", false, "", "\"my types\""});
    auto query = everything();
    query.where = {where("email", comparison_operator::neq, "a@b"), where("email", comparison_operator::ilike, "A%"),
                   where("email", comparison_operator::in, "")};
    query.where.back().value = boost::json::array{"a", "b"};
    const auto plan = plan_read(known, {std::move(query), std::nullopt});
    ASSERT_TRUE(plan.faults.empty());
    EXPECT_TRUE(has(plan,
                    "t.\"email\" operator(\"my types\".<>) $1 and t.\"email\" operator(\"my types\".~~*) $2 and "
                    "t.\"email\" operator(\"my types\".=) any ($3)"));
}

TEST(read_sql, query_values_bound_and_names_quoted) {
    auto query = everything();
    query.select = {{"sku", "sku"}, {"odd\"name", "x\"y"}};
    query.where = {where("stock", comparison_operator::gte, "3"), where("sku", comparison_operator::like, "'; drop%")};
    query.order = {{"stock", true, false}, {"sku", false, std::nullopt}};
    query.offset = 5;
    query.count = true;
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
    any.members = {where("stock", comparison_operator::lt, "1"), where("sku", comparison_operator::neq, "a")};
    any.members[1].negated = true;
    query.where = {any, where("stock", comparison_operator::gt, "0")};
    EXPECT_TRUE(has(plan_of(query), " where (not (t.\"stock\" < $1 or (not t.\"sku\" <> $2))) and t.\"stock\" > $3"));
}

TEST(read_sql, unknown_names_fault_names_parameter) {
    auto query = everything();
    query.select = {{"nope", "nope"}};
    query.where = {where("gone", comparison_operator::eq, "1")};
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

TEST(read_sql, stable_function_read_with_limit) {
    function_query query;
    query.function = "list";
    query.args = {{"kind", boost::json::value("x"), "kind", true}};
    query.limit = 7;
    const auto plan = plan_read(shop(), {query, std::nullopt});
    EXPECT_TRUE(has(plan, "public.list(\"kind\" => $1::text) as fencegate_item limit $2::bigint"));
    EXPECT_FALSE(plan.needs_fence);
    query.args.clear();
    EXPECT_FALSE(plan_read(shop(), {query, std::nullopt}).faults.empty());
}

TEST(read_sql, volatile_function_needs_fence) {
    function_query query;
    query.function = "poke";
    const auto plan = plan_read(shop(), {query, std::nullopt});
    EXPECT_TRUE(plan.needs_fence);
    EXPECT_EQ(plan.shape, answer_shape::nothing);
}

}  // namespace
