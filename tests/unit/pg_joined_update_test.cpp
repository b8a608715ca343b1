#include <gateway/pg/write/joined_update.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <gtest/gtest.h>
#include <boost/json/array.hpp>

#include <memory>
#include <string>
#include <utility>

using namespace fencegate;
using namespace fencegate::pg;

namespace {

catalog shop_with_stock() {
    catalog out;
    auto& inventory = out.tables["inventory"];
    inventory.target = "public.inventory";
    inventory.operations = {"select", "update"};
    inventory.columns = {{"sku", "text"},  {"stock", "integer"},
                         {"note", "text"}, {"price", "numeric(12,2)"},
                         {"due", "date"},  {"code", "character varying(3)"}};
    inventory.shared_resource_expression = "'inventory/' || sku";
    auto& loose = out.tables["loose"];
    loose = inventory;
    loose.shared_resource_expression.clear();
    return out;
}

comparison compare_column(std::string column, comparison_operator op, boost::json::value value) {
    return {std::move(column), op, std::move(value), "/where"};
}

assignment assign_value(std::string name, boost::json::value value) {
    return {std::move(name), std::move(value), "/set"};
}

update_operation sale() {
    update_operation op;
    op.table = "inventory";
    op.set = {assign_value("note", "sold")};
    op.add = {assign_value("stock", -1)};
    op.where = {compare_column("sku", comparison_operator::eq, "sku-1"),
                compare_column("stock", comparison_operator::gte, 1)};
    return op;
}

}  // namespace

TEST(join_update, rows_tied_to_resource_of_their_write) {
    const auto made = join_update(shop_with_stock(), sale());
    ASSERT_TRUE(made);
    EXPECT_EQ(made->sql,
              "update public.inventory as t set \"note\" = v.fencegate_1, \"stock\" = t.\"stock\" + v.fencegate_2 "
              "from unnest($1::text[], $2::integer[], $3::text[], $4::integer[], $5::text[]) with ordinality as v "
              "(fencegate_1, fencegate_2, fencegate_3, fencegate_4, fencegate_resource, fencegate_position) "
              "where t.\"sku\" = v.fencegate_3 and t.\"stock\" >= v.fencegate_4 and "
              "case when ('inventory/' || sku\n) collate \"C\" = v.fencegate_resource then true "
              "else 1 / (v.fencegate_position - v.fencegate_position) > 0 end "
              "returning v.fencegate_position, ('inventory/' || sku\n) collate \"C\" = v.fencegate_resource");
    EXPECT_EQ(made->recheck, (compat::parameters{"public.inventory", "'inventory/' || sku"}));
}

TEST(join_update, values_in_order_of_single_statement) {
    const auto known = shop_with_stock();
    const auto plan = build_statements(known, {sale()}, {});
    const auto made = join_update(known, sale());
    ASSERT_TRUE(made);
    EXPECT_EQ(made->parameters, plan.operations.front().sql.parameters.size());
    EXPECT_EQ(plan.operations.front().sql.parameters, (compat::parameters{"sold", "-1", "sku-1", "1"}));
}

TEST(join_update, other_shapes_are_not_joined) {
    const auto refuses = [](auto change) {
        auto op = sale();
        change(op);
        return !join_update(shop_with_stock(), op);
    };
    EXPECT_TRUE(refuses([](auto& op) { op.table = "loose"; }));
    EXPECT_TRUE(refuses([](auto& op) { op.table = "unknown"; }));
    EXPECT_TRUE(
        refuses([](auto& op) { op.set = {assign_value("price", "1.005")}; }));  // an array would not keep the length
    EXPECT_TRUE(refuses([](auto& op) { op.set = {assign_value("code", "abcd")}; }));
    EXPECT_TRUE(refuses([](auto& op) { op.set = {assign_value("unknown", 1)}; }));
    EXPECT_TRUE(refuses([](auto& op) { op.add = {assign_value("due", "1 day")}; }));
    EXPECT_TRUE(
        refuses([](auto& op) { op.where.push_back(compare_column("note", comparison_operator::is, nullptr)); }));
    EXPECT_TRUE(refuses(
        [](auto& op) { op.where.push_back(compare_column("sku", comparison_operator::in, boost::json::array{"a"})); }));
}

TEST(joined_values, array_elements_are_quoted) {
    joined_values columns(2);
    columns.add({"a", "1"}, "inventory/a");
    columns.add({"say \"b\\c\", {d}", std::nullopt}, "inventory/b");
    columns.add({"NULL", ""}, "inventory/c");
    EXPECT_EQ(columns.take(), (compat::parameters{R"({"a","say \"b\\c\", {d}","NULL"})", R"({"1",NULL,""})",
                                                  R"({"inventory/a","inventory/b","inventory/c"})"}));
}

TEST(joined_answer, rows_counted_by_place_foreign_row_gives_none) {
    PGresult* made = PQmakeEmptyPGresult(nullptr, PGRES_TUPLES_OK);
    char place[] = "place";
    char own[] = "own";
    PGresAttDesc columns[] = {{place, 0, 0, 0, 20, 8, -1}, {own, 0, 0, 0, 16, 1, -1}};
    ASSERT_EQ(PQsetResultAttrs(made, 2, columns), 1);
    int row = 0;
    for (auto [at, covered] : {std::pair("3", "t"), {"1", "t"}, {"3", "t"}, {"4", "t"}, {"4", "f"}, {"4", "t"}}) {
        std::string first = at;
        std::string second = covered;
        PQsetvalue(made, row, 0, first.data(), static_cast<int>(first.size()));
        PQsetvalue(made, row++, 1, second.data(), static_cast<int>(second.size()));
    }
    const joined_answer answer(answer_rows(made), 4);
    EXPECT_EQ(answer.changed(1), 1);
    EXPECT_EQ(answer.changed(2), 0);
    EXPECT_EQ(answer.changed(3), 2);
    EXPECT_EQ(answer.changed(4), std::nullopt);
}

TEST(unjoinable_updates, forget_all_when_full) {
    unjoinable_updates unjoinable;
    unjoinable.add("first");
    EXPECT_TRUE(unjoinable.has("first"));
    EXPECT_FALSE(unjoinable.has("second"));
    for (int i = 0; i < 256; ++i)
        unjoinable.add(std::to_string(i));
    EXPECT_FALSE(unjoinable.has("first"));
}
