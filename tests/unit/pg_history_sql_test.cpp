#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/history/history_reader.hpp>
#include <gateway/pg/history/history_writer.hpp>

#include <gtest/gtest.h>
#include <libpq-fe.h>

using namespace fencegate;
using namespace fencegate::pg;

TEST(history_sql, no_filter_newest_first) {
    const auto s = history_sql({});
    EXPECT_NE(s.sql.find("from fencing.history order by at desc, id desc limit $1::bigint"), std::string::npos);
    EXPECT_EQ(s.parameters, (compat::parameters{"100"}));
}

TEST(history_sql, what_writes_wanted_is_read_only_if_asked_for) {
    history_query q;
    EXPECT_NE(history_sql(q).sql.find("(detail - 'wanted')::text"), std::string::npos);
    q.with_wanted = true;
    EXPECT_EQ(history_sql(q).sql.find("'wanted'"), std::string::npos);
}

TEST(history_sql, prefix_becomes_range_not_pattern) {
    history_query q;
    q.resource_prefix = "inventory/50%_";
    const auto s = history_sql(q);
    EXPECT_NE(s.sql.find("where resource >= $1 and resource < $2 "), std::string::npos);
    EXPECT_EQ(s.parameters.at(0), "inventory/50%_");
    EXPECT_EQ(s.parameters.at(1), "inventory/50%`");
}

TEST(history_sql, prefix_without_next_byte_is_compared) {
    history_query q;
    for (const char* prefix : {"inventory/\x7f", "inventory/\xc3\xa9"}) {
        q.resource_prefix = prefix;
        const auto s = history_sql(q);
        EXPECT_NE(s.sql.find("where resource >= $1 and starts_with(resource, $2) "), std::string::npos);
        EXPECT_EQ(s.parameters.at(1), prefix);
    }
}

TEST(history_sql, every_filter_value_is_bound) {
    history_query q;
    q.resource = q.resource_prefix = q.event = q.owner = q.principal = q.write_id = q.trace_id = "x";
    q.token_min = 1;
    q.token_max = 2;
    q.from = q.to = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'500));
    q.after = history_position{2'500'000, 7};
    q.ascending = true;
    q.limit = 5'000;
    const auto s = history_sql(q);
    EXPECT_EQ(s.parameters.size(), 15u);
    EXPECT_NE(s.sql.find("at >= $11::timestamptz and at < $12::timestamptz"), std::string::npos) << s.sql;
    EXPECT_EQ(s.parameters.at(10), "1970-01-01T00:00:01.500000Z");
    EXPECT_NE(s.sql.find(
                  " and (at, id) > ($13::timestamptz, $14::bigint) and at >= $13::timestamptz order by at asc, id asc"),
              std::string::npos)
        << s.sql;
    EXPECT_EQ(s.parameters.at(12), "1970-01-01T00:00:02.500000Z");
    EXPECT_EQ(s.parameters.back(), "5000");
}

TEST(changes_sql, every_filter_value_is_bound) {
    change_query q;
    q.table = "public.t";
    q.key = R"({"id":"1"})";
    q.column = "n";
    q.resource = q.principal = q.write_id = "x";
    q.token_min = q.token_max = 2;
    q.after = history_position{2'500'000, 7};
    const auto s = changes_sql(q);
    EXPECT_NE(s.sql.find("from fencing.row_change where relation = $1 and jsonb_hash_extended(row_key, 0) = "
                         "jsonb_hash_extended($2::jsonb, 0) and jsonb_eq(row_key, $3::jsonb) and jsonb_exists("),
              std::string::npos)
        << s.sql;
    EXPECT_NE(
        s.sql.find("(at, id) < ($10::timestamptz, $11::bigint) and at <= $10::timestamptz order by at desc, id desc"),
        std::string::npos)
        << s.sql;
    EXPECT_EQ(s.parameters.size(), 12u);
    EXPECT_EQ(s.parameters.at(1), R"({"id":"1"})");
    EXPECT_EQ(s.parameters.at(2), R"({"id":"1"})");
}

TEST(history_sql, range_of_ids_is_read_whatever_the_filters) {
    history_query q;
    q.ids = {7, 9};
    q.principal = "p";
    const auto s = history_sql(q);
    EXPECT_NE(s.sql.find("(select * from fencing.history where id > $1::bigint and id <= $2::bigint order by id "
                         "offset 0) as block where principal = $3 order by id limit $4::bigint"),
              std::string::npos)
        << s.sql;
    EXPECT_EQ(s.parameters, (compat::parameters{"7", "9", "p", "100"}));
}

TEST(history_query, search_is_what_no_index_finds) {
    history_query q;
    q.trace_id = "t";
    EXPECT_FALSE(is_search(q));
    q.resource_prefix = "a/";
    EXPECT_TRUE(is_search(q)) << "callers choose trace ids, so that one may have any number of rows";
    q.write_id = "w";
    EXPECT_FALSE(is_search(q));
}

TEST(history_json, empty_fields_left_out_time_has_microseconds) {
    history_item item;
    item.event = "lease_granted";
    item.at = std::chrono::system_clock::time_point(std::chrono::microseconds(1'500'001));
    item.resource = "a/1";
    item.fencing_token = 9007199254740991;
    item.detail = R"({"ttl_ms": 5})";
    EXPECT_EQ(history_json({item}), R"([{"event":"lease_granted","at":"1970-01-01T00:00:01.500001Z","resource":"a/1",)"
                                    R"("fencing_token":9007199254740991,"detail":{"ttl_ms":5}}])");
}

TEST(history_json, detail_without_object_kept_as_text) {
    history_item item;
    item.event = "x";
    item.detail = "plain";
    EXPECT_EQ(history_json({item}), R"([{"event":"x","detail":{"text":"plain"}}])");
}

TEST(history_columns, one_array_per_column_null_without_values) {
    history_item first;
    first.event = "lease_granted";
    first.at = std::chrono::system_clock::time_point(std::chrono::microseconds(1'500'001));
    first.resource = "a/1";
    first.fencing_token = 9007199254740991;
    first.initiator.principal = R"(q"u\o)";
    first.detail = R"({"ttl_ms": 5})";
    history_item second;
    second.event = "node_quarantined";
    second.detail = "plain";
    second.initiator.principal = std::string("NULL\0", 5);
    const auto columns = history_columns({first, second});
    const compat::parameters expected{"{1500001,NULL}",
                                      R"({"lease_granted","node_quarantined"})",
                                      R"({"a/1",NULL})",
                                      "{9007199254740991,NULL}",
                                      std::nullopt,
                                      std::nullopt,
                                      R"({"q\"u\\o","NULL"})",
                                      std::nullopt,
                                      std::nullopt,
                                      R"({"{\"ttl_ms\": 5}","{\"text\":\"plain\"}"})"};
    EXPECT_EQ(columns, expected);
}

TEST(connection_string, missing_timeout_added_in_same_form) {
    EXPECT_EQ(add_connect_timeout("host=a"), "connect_timeout=2 host=a");
    EXPECT_EQ(add_connect_timeout("host=a connect_timeout=9"), "host=a connect_timeout=9");
    EXPECT_EQ(add_connect_timeout("postgresql://u@h/d"), "postgresql://u@h/d?connect_timeout=2");
    EXPECT_EQ(add_connect_timeout("postgres://u@h/d?sslmode=require"),
              "postgres://u@h/d?sslmode=require&connect_timeout=2");
}

/// Returns the password that libpq reads.
std::string password_of(const std::string& conninfo) {
    auto* options = PQconninfoParse(conninfo.c_str(), nullptr);
    std::string out = "(invalid)";
    for (auto* option = options; option != nullptr && option->keyword != nullptr; ++option) {
        if (option->keyword == std::string("password")) out = option->val == nullptr ? "(none)" : option->val;
    }
    PQconninfoFree(options);
    return out;
}

TEST(connection_string, password_added_where_there_is_none) {
    const std::string odd = "a b'c\\d%&=@/?#\xc3\xa4";
    for (const char* without : {"", "host=a", "host = a user='b c'", "postgresql://u@h/d",
                                "postgres://u@h/d?sslmode=require", "postgresql://", "postgresql:///d?host=/run/x"})
        EXPECT_EQ(password_of(add_password(without, odd)), odd) << without;
    for (const char* own : {"password=own host=a", "host=a password=own", "password = 'own'", "postgresql://u:own@h/d",
                            "postgresql://u@h/d?password=own"}) {
        EXPECT_EQ(password_of(add_password(own, odd)), "own") << own;
    }
    EXPECT_EQ(password_of(add_password("host=a password=''", odd)), "") << "as PGPASSWORD would not count";
    EXPECT_EQ(add_password("host=a", ""), "host=a");
}

TEST(connection_string, error_names_hosts_and_no_part_of_password) {
    EXPECT_EQ(describe_connect_error("connection to server at \"db\", port 5432 failed: Connection refused\n\tIs it "
                                     "running?\nconnection to server at \"eb\", port 1 failed: timeout expired\n",
                                     "host=db,eb port=5432,1 password=hunter2"),
              "connection to server at \"db\", port 5432 failed: Connection refused; connection to server at \"eb\", "
              "port 1 failed: timeout expired");
    EXPECT_EQ(classify_connect_error("connection to server at \"starting up\", port 1 failed: timeout expired"),
              "PostgreSQL does not answer");
    EXPECT_EQ(classify_connect_error("password authentication failed for user \"u\""), "PostgreSQL can't be reached");
    EXPECT_EQ(classify_connect_error("FATAL:  sorry, too many clients already"),
              "PostgreSQL has no connection left (max_connections)");
    EXPECT_EQ(classify_connect_error("FATAL:  the database system is starting up"), "PostgreSQL is starting up");
    EXPECT_NE(classify_connect_error("session is read-only").find("standby"), std::string::npos);
    for (const std::string conninfo : {"password=my hunter2", "postgresql://u:p@hunter2@h/d"}) {
        const auto shown = describe_connect_error("could not translate host name \"hunter2@h\"\n", conninfo);
        EXPECT_EQ(shown.find("hunter2"), std::string::npos) << shown;
    }
    const std::string refused = "connection to server at \"h\", port 1 failed: Connection refused";
    EXPECT_EQ(describe_connect_error(refused, "postgresql://u@h:1/d?application_name=a@b"), refused);
}
