#include "fault_names.hpp"

#include <gateway/api/tables/table_grammar.hpp>
#include <gateway/api/tables/table_request.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/http/codec/fields.hpp>

#include <gtest/gtest.h>
#include <boost/json/serialize.hpp>

#include <string>

namespace fencegate::api {
namespace {

/// Returns a parsed condition as text.
std::string describe(const comparison& condition) {
    constexpr const char* names[] = {"eq", "neq", "lt", "lte", "gt", "gte", "in", "is", "like", "ilike", "all", "any"};
    std::string out = condition.negated ? "not " : "";
    out += names[static_cast<int>(condition.op)];
    if (condition.members.empty()) return out + " " + condition.column + " " + boost::json::serialize(condition.value);
    for (const auto& member : condition.members)
        out += (&member == condition.members.data() ? "(" : ", ") + describe(member);
    return out + ")";
}

std::string parse_and_describe(std::string_view parameter, std::string_view text) {
    http::fault_list faults;
    const auto condition = parse_condition(parameter, text, faults);
    if (faults.empty()) return describe(condition);
    const auto f = std::move(faults).to_failure();
    EXPECT_EQ(f.errors.front().pointer, parameter);
    return "fault";
}

TEST(api_table_grammar, operators_then_as_named) {
    EXPECT_EQ(parse_and_describe("a", "eq.1"), R"~(eq a "1")~");
    EXPECT_EQ(parse_and_describe("a", "neq."), R"~(neq a "")~");
    EXPECT_EQ(parse_and_describe("a", "lt.x.y,z)"), R"~(lt a "x.y,z)")~");
    EXPECT_EQ(parse_and_describe("a", "gte.-1"), R"~(gte a "-1")~");
    EXPECT_EQ(parse_and_describe("a", "not.eq.not.eq.1"), R"~(not eq a "not.eq.1")~");
    EXPECT_EQ(parse_and_describe("a", "like.*x%*"), R"~(like a "%x%")~");
    EXPECT_EQ(parse_and_describe("a", R"(like.**\%%*_%)"), R"~(like a "%\\%%_%")~");
    EXPECT_EQ(parse_and_describe("a", "not.ilike.X*"), R"~(not ilike a "X%")~");
    EXPECT_EQ(parse_and_describe("a", "is.null"), "is a null");
    EXPECT_EQ(parse_and_describe("a", "not.is.true"), "not is a true");
    EXPECT_EQ(parse_and_describe("a", "is.unknown"), R"~(is a "unknown")~");
}

TEST(api_table_grammar, list_then_values_with_and_without_quotes) {
    EXPECT_EQ(parse_and_describe("a", "in.(1,2)"), R"~(in a ["1","2"])~");
    EXPECT_EQ(parse_and_describe("a", R"~(in.(a,"b,c","d\"e\\f)",,"()"))~"),
              R"~(in a ["a","b,c","d\"e\\f)","","()"])~");
    EXPECT_EQ(parse_and_describe("a", "in.()"), "in a []");
    EXPECT_EQ(parse_and_describe("a", R"~(in.(""))~"), R"~(in a [""])~");
    EXPECT_EQ(parse_and_describe("or", "(a.in.(),b.eq.1)"), R"~(any(in a [], eq b "1"))~");
    EXPECT_EQ(parse_and_describe("a", "not.in.(x)"), R"~(not in a ["x"])~");
}

TEST(api_table_grammar, name_in_quotes_then_any_name) {
    EXPECT_EQ(parse_and_describe(R"~("select")~", "eq.1"), R"~(eq select "1")~");
    EXPECT_EQ(parse_and_describe(R"~("odd \"na.me")~", "eq.1"), R"~(eq odd "na.me "1")~");
}

TEST(api_table_grammar, groups_then_nested) {
    EXPECT_EQ(parse_and_describe("or", "(a.eq.1,b.lt.2)"), R"~(any(eq a "1", lt b "2"))~");
    EXPECT_EQ(parse_and_describe("not.and", "(a.eq.1)"), R"~(not all(eq a "1"))~");
    EXPECT_EQ(parse_and_describe("or", R"~((a.not.in.(1,"2,)"),not.and(b.is.null,or.eq.5,c.eq."x,y")))~"),
              R"~(any(not in a ["1","2,)"], not all(is b null, eq or "5", eq c "x,y")))~");
}

TEST(api_table_grammar, faulty_text_then_a_fault_of_its_parameter) {
    for (const char* text : {"",
                             "1",
                             "eq",
                             "eq1",
                             ".eq.1",
                             "EQ.1",
                             "not",
                             "not.",
                             "not.not.eq.1",
                             "fts.x",
                             "cs.{a}",
                             "in.1",
                             "in.(1",
                             "in.(1,2",
                             "in.1)",
                             "in.(1)x",
                             R"~(in.("a))~",
                             R"~(in.("a\)~",
                             R"~(in.("a"b))~",
                             "is.1",
                             "is.nul",
                             "is.",
                             "eq(any).1",
                             "--",
                             "'; drop table a; --"}) {
        EXPECT_EQ(parse_and_describe("a", text), "fault") << text;
    }
    for (const char* text :
         {"", "(", ")", "()", "(a)", "(a.eq)", "(a.eq.1", "a.eq.1)", "(a.eq.1))", "(a.eq.1,)", "(,a.eq.1)",
          "((a.eq.1))", "(and())", "(and(a.eq.1)", R"~((a.eq."1))~", R"~(("a.eq.1))~", "(.eq.1)"}) {
        EXPECT_EQ(parse_and_describe("or", text), "fault") << text;
    }
    for (const char* name : {R"~("a)~", R"~("a"b)~", "", R"~("")~"})
        EXPECT_EQ(parse_and_describe(name, "eq.1"), "fault") << name;
}

TEST(api_table_grammar, more_than_the_limits_then_a_fault) {
    const auto repeated = [](std::string_view what, int times) {
        std::string out;
        for (int i = 0; i < times; ++i)
            out += what;
        return out;
    };
    EXPECT_NE(parse_and_describe("a", "in.(1" + repeated(",1", 999) + ")"), "fault");
    EXPECT_EQ(parse_and_describe("a", "in.(1" + repeated(",1", 1000) + ")"), "fault");
    EXPECT_NE(parse_and_describe("or", "(a.eq.1" + repeated(",a.eq.1", 255) + ")"), "fault");
    EXPECT_EQ(parse_and_describe("or", "(a.eq.1" + repeated(",a.eq.1", 256) + ")"), "fault");
    EXPECT_EQ(parse_and_describe("or", "(a.eq.1" + repeated(",a.eq.1", 10'000) + ")"), "fault");
    EXPECT_NE(parse_and_describe("or", "(" + repeated("and(", 7) + "a.eq.1" + repeated(")", 7) + ")"), "fault");
    EXPECT_EQ(parse_and_describe("or", "(" + repeated("and(", 8) + "a.eq.1" + repeated(")", 8) + ")"), "fault");
    EXPECT_EQ(parse_and_describe("or", repeated("(", 100'000)), "fault");
    EXPECT_EQ(parse_and_describe("or", "(" + repeated("or(", 100'000)), "fault");
    EXPECT_EQ(parse_and_describe(std::string(200, 'a'), "eq.1"), "fault");
}

std::string describe(const selected_column& selected) {
    std::string out = selected.alias + "=" + selected.column;
    if (!selected.embedded) return out;
    out += "!" + selected.embedded->hint + (selected.embedded->inner ? "!inner(" : "(");
    for (const auto& inner : selected.embedded->rows.select)
        out += describe(inner) + ";";
    return out + ")";
}

std::string columns(std::string_view text) {
    http::fault_list faults;
    std::string out;
    for (const auto& selected : parse_select(text, faults))
        out += describe(selected) + ";";
    return faults.empty() ? out : "fault";
}

TEST(api_table_grammar, select_then_columns_and_aliases) {
    EXPECT_EQ(columns("*"), "");
    EXPECT_EQ(columns("a,b"), "a=a;b=b;");
    EXPECT_EQ(columns(R"~(left:a,"x,y":"odd \"b")~"), R"~(left=a;x,y=odd "b;)~");
    for (const char* text : {"", ",", "a,", "a,a", "x:a,x:b", "a:", ":a", "a:b:c", "a,*x(", "a::", R"~("a)~", "*x",
                             "*,*", "a,*,b,*", "fencegate_row:a"})
        EXPECT_EQ(columns(text), "fault") << text;
    EXPECT_NE(columns(std::string(63, 'x') + ":a"), "fault");
    EXPECT_EQ(columns(std::string(64, 'x') + ":a"), "fault");
    std::string repeated = "a";
    for (int i = 1; i < 8; ++i)
        repeated += ",a" + std::to_string(i) + ":a";
    EXPECT_NE(columns(repeated), "fault");
    EXPECT_EQ(columns(repeated + ",b,a8:a"), "fault");
    std::string many = "c0";
    for (int i = 1; i < 1600; ++i)
        many += ",c" + std::to_string(i);
    http::fault_list faults;
    EXPECT_EQ(parse_select(many, faults).size(), 1600U);
    EXPECT_EQ(parse_names("columns", many, faults).size(), 1600U);
    EXPECT_TRUE(faults.empty());
    EXPECT_TRUE(parse_names("columns", many + ",x", faults).empty());
    EXPECT_EQ(columns(many + ",x"), "fault");
}

TEST(api_table_grammar, select_then_embedded_tables) {
    EXPECT_EQ(columns("*,a"), "=;a=a;");
    EXPECT_EQ(columns("id,lines(*),mine:orders!by!inner(id,lines!left(sku))"),
              "id=id;lines=lines!(=;);mine=orders!by!inner(id=id;lines=lines!(sku=sku;););");
    for (const char* text : {"a()", "a(", "a(b", "a(b))", "a!(b)", "a!x!y(b)", "a!inner", "a(b),a(c)", "...a(b)",
                             "count()", "x.sum()", "a::int4", "a->b", "a(b->>c)", "a(b(c(d(e(f)))))"})
        EXPECT_EQ(columns(text), "fault") << text;
    EXPECT_NE(columns("a(b(c(d(e))))"), "fault");
    std::string many = "t0(a)";
    for (int i = 1; i < 16; ++i)
        many += ",t" + std::to_string(i) + "(a)";
    EXPECT_NE(columns(many), "fault");
    EXPECT_EQ(columns(many + ",t16(a)"), "fault");
}

TEST(api_table_grammar, cast_then_to_text_under_either_name) {
    http::fault_list faults;
    const auto columns = parse_select("a::text,b:c::text,d", faults);
    ASSERT_TRUE(faults.empty());
    ASSERT_EQ(columns.size(), 3U);
    EXPECT_TRUE(columns[0].as_text && columns[0].column == "a" && columns[0].alias == "a");
    EXPECT_TRUE(columns[1].as_text && columns[1].column == "c" && columns[1].alias == "b");
    EXPECT_FALSE(columns[2].as_text);
}

TEST(api_table_grammar, unsupported_part_then_named) {
    http::fault_list faults;
    parse_condition("a", "fts(english).x", faults);
    parse_condition("a", "1", faults);
    parse_select("a::int4", faults);
    parse_order("order", "orders(id)", faults);
    const auto errors = std::move(faults).to_failure().errors;
    ASSERT_EQ(errors.size(), 4U);
    EXPECT_TRUE(errors[0].detail.starts_with("has the operator fts(english), which is not supported;"));
    EXPECT_TRUE(errors[1].detail.starts_with("has no operator;"));
    EXPECT_EQ(errors[2].detail, "has a cast (::int4); only ::text is supported");
    EXPECT_EQ(errors[3].detail, "can't order by a column of an embedded table");
}

std::string sorted(std::string_view text) {
    http::fault_list faults;
    std::string out;
    for (const auto& key : parse_order("order", text, faults)) {
        out += key.column + (key.descending ? " desc" : " asc");
        if (key.nulls_first) out += *key.nulls_first ? " first" : " last";
        out += ";";
    }
    return faults.empty() ? out : "fault";
}

TEST(api_table_grammar, order_then_keys_in_turn) {
    EXPECT_EQ(sorted("a"), "a asc;");
    EXPECT_EQ(sorted("a.desc.nullslast,b.asc.nullsfirst,c.nullsfirst"), "a desc last;b asc first;c asc first;");
    EXPECT_EQ(sorted(R"~("a.desc".desc)~"), "a.desc desc;");
    for (const char* text : {"", "a.", "a.up", "a.desc.", "a.nullslast.desc", "a,", ".desc"})
        EXPECT_EQ(sorted(text), "fault") << text;
}

http::request to_table(http::method verb, std::string query, std::string body = {}) {
    http::request r;
    r.verb = verb;
    r.path_parameters = {"inventory"};
    r.query = std::move(query);
    r.body = std::move(body);
    if (!r.body.empty()) r.headers.emplace_back("content-type", "application/json");
    return r;
}

TEST(api_table_request, query_then_every_part) {
    const auto got = parse_table_query(
        to_table(http::method::get, "stock=gte.1&stock=lt.9&select=sku&order=sku.desc&limit=5000&offset=7"), {}, 1'000);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->table, "inventory");
    EXPECT_EQ(got->where.size(), 2U);
    EXPECT_EQ(got->limit, 1'000);
    EXPECT_EQ(got->offset, 7);
}

TEST(api_table_request, faulty_query_then_each_parameter_by_name) {
    const auto got = parse_table_query(
        to_table(http::method::get, "stock=7&select=,&order=&limit=-1&offset=x&limit=3&on_conflict=a&or=(a"), {}, 10);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, errc::invalid_request);
    EXPECT_EQ(pointers(got.error()), (names{"stock", "select", "order", "limit", "offset", "on_conflict", "or"}));
}

TEST(api_table_request, too_many_filters_nul_or_bad_encoding_then_refused) {
    std::string many = "a=eq.1";
    for (int i = 0; i < 10'000; ++i)
        many += "&a=eq.1";
    for (const std::string& query : {many, std::string("a=eq.%00"), std::string("%00=eq.1"), std::string("a=eq.%zz")}) {
        const auto got = parse_table_query(to_table(http::method::get, query), {}, 10);
        ASSERT_FALSE(got) << query.substr(0, 20);
        EXPECT_EQ(got.error().code, errc::invalid_request);
    }
}

TEST(api_table_request, change_without_condition_then_refused) {
    EXPECT_EQ(pointers(parse_table_write(to_table(http::method::patch, "", R"({"a":1})"), {}, {}, 10).error()),
              names{"query"});
    EXPECT_EQ(pointers(parse_table_write(to_table(http::method::del, "select=a"), {}, {}, 10).error()), names{"query"});
    EXPECT_EQ(pointers(parse_table_write(to_table(http::method::del, "a=eq.1&limit=1"), {}, {}, 10).error()),
              names{"limit"});
    EXPECT_EQ(pointers(parse_table_write(to_table(http::method::patch, "a=eq.1", "{}"), {}, {}, 10).error()),
              names{""});
}

TEST(api_table_request, rows_then_checked_one_by_one) {
    const auto faults = [](std::string body) {
        const auto got = parse_table_write(to_table(http::method::post, "", std::move(body)), {}, {}, 2);
        return got ? names{} : pointers(got.error());
    };
    EXPECT_EQ(faults(R"({"a":1})"), names{});
    EXPECT_EQ(faults(R"([{"a":1,"b":2},{"b":3,"a":4}])"), names{});
    EXPECT_EQ(faults(R"([{"a":1},{"b":1}])"), names{"/1"});
    EXPECT_EQ(faults(R"([{"a":1},3])"), names{"/1"});
    EXPECT_EQ(faults("[]"), names{""});
    EXPECT_EQ(faults(R"([{"a":1},{"a":1},{"a":1}])"), names{""});
    EXPECT_EQ(faults("3"), names{""});
}

TEST(api_table_request, columns_then_other_keys_do_not_count) {
    const auto insert = [](std::string query, std::string body, bool missing_default) {
        preferences preferred;
        preferred.missing_default = missing_default;
        const auto got = parse_table_write(to_table(http::method::post, query, body), preferred, {}, 3);
        return got ? std::get<insert_operation>(got->operations.front()) : insert_operation();
    };
    const auto two = insert("columns=a,\"b\"", R"([{"a":1,"c":2},{"b":3}])", false);
    ASSERT_EQ(two.values.size(), 2U);
    EXPECT_EQ(two.values[1].name, "b");
    EXPECT_TRUE(two.values[1].value.is_null());
    EXPECT_EQ(two.rows.size(), 2U);
    EXPECT_EQ(insert("columns=a,b", R"([{"a":1}])", false).values.size(), 2U);
    EXPECT_EQ(insert("columns=a,b", R"([{"a":1}])", true).values.size(), 1U);
    EXPECT_EQ(pointers(parse_table_write(to_table(http::method::post, "columns=a,a", "{}"), {}, {}, 2).error()),
              names{"columns"});
    EXPECT_EQ(pointers(parse_table_write(to_table(http::method::patch, "a=eq.1&columns=a", "{}"), {}, {}, 2).error()),
              (names{"columns", ""}));
}

TEST(api_table_request, embedded_table_then_its_parameters) {
    const auto got = parse_table_query(
        to_table(http::method::get,
                 "mine.lines.limit=1&mine.a=eq.2&mine.order=b&other.a=eq.1&select=id,mine:orders(id,lines(*))"),
        {}, 10);
    ASSERT_TRUE(got);
    ASSERT_EQ(got->where.size(), 1U);
    EXPECT_EQ(got->where[0].column, "other.a");
    const auto& orders = got->select.at(1).embedded->rows;
    EXPECT_EQ(orders.where.at(0).column, "a");
    EXPECT_EQ(orders.where.at(0).pointer, "mine.a");
    EXPECT_EQ(orders.order.at(0).column, "b");
    EXPECT_EQ(orders.limit, 10);
    EXPECT_EQ(orders.select.at(1).embedded->rows.limit, 1);
    EXPECT_EQ(pointers(parse_table_write(to_table(http::method::del, "a=eq.1&select=b(c)"), {}, {}, 2).error()),
              names{"select"});
}

TEST(api_table_request, upsert_names_conflict_columns_or_none) {
    preferences preferred;
    preferred.resolution = conflict_resolution::merge;
    EXPECT_TRUE(parse_table_write(to_table(http::method::post, "", R"({"a":1})"), preferred, {}, 2));
    const auto got = parse_table_write(to_table(http::method::post, "on_conflict=a", R"({"a":1})"), preferred, {}, 2);
    ASSERT_TRUE(got);
    EXPECT_TRUE(std::get<insert_operation>(got->operations.front()).on_conflict->replace);
    EXPECT_EQ(
        pointers(parse_table_write(to_table(http::method::post, "on_conflict=a", R"({"a":1})"), {}, {}, 2).error()),
        names{"on_conflict"});
}

TEST(api_preferences, known_then_applied_and_unknown_ignored) {
    http::request r;
    r.headers = {{"prefer", "return=representation, count=planned"},
                 {"prefer", "count=exact,resolution=ignore-duplicates"}};
    const auto got = parse_preferences(r);
    EXPECT_EQ(got.representation, true);
    EXPECT_EQ(got.count, row_count::planned);
    EXPECT_EQ(got.resolution, conflict_resolution::ignore);
    EXPECT_EQ(got.applied, "return=representation, count=planned, resolution=ignore-duplicates");
}

TEST(api_preferences, max_affected_then_a_number) {
    for (const auto& [text, number] : {std::pair{"max-affected=3", std::optional<std::int64_t>(3)},
                                       std::pair{"max-affected=x", std::optional<std::int64_t>()},
                                       std::pair{"max-affected=-1", std::optional<std::int64_t>()},
                                       std::pair{"max-affected", std::optional<std::int64_t>()}}) {
        http::request r;
        r.headers = {{"prefer", text}};
        EXPECT_EQ(parse_preferences(r).max_affected, number) << text;
    }
}

TEST(api_preferences, repeated_preference_then_first_counts) {
    http::request r;
    r.headers = {{"prefer", "return=minimal"}, {"prefer", "return=representation, count=exact, count=exact"}};
    const auto got = parse_preferences(r);
    EXPECT_EQ(got.representation, false);
    EXPECT_EQ(got.applied, "return=minimal, count=exact");
}

}  // namespace
}  // namespace fencegate::api
