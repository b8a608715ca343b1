#include <gateway/pg/connection/sqlstate_map.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>

using fencegate::errc;
using namespace fencegate::pg;

namespace {

server_error error_of(std::string sqlstate, std::string message = "the words") {
    server_error out;
    out.sqlstate = std::move(sqlstate);
    out.message = std::move(message);
    return out;
}

struct row {
    const char* sqlstate;
    errc code;
    bool message_shown;
    bool retry_after;
    bool ends_session;
};

// A SQLSTATE for each row of the table, and SQLSTATEs that the table does not have.
const row rows[] = {
    {"08006", errc::storage_unavailable, false, true, true},
    {"22P02", errc::unprocessable, true, false, false},
    {"22001", errc::unprocessable, true, false, false},
    {"23514", errc::constraint_violation, true, false, false},
    {"23505", errc::constraint_violation, true, false, false},
    {"25P02", errc::internal_error, false, false, true},
    {"25006", errc::storage_unavailable, false, true, true},
    {"25P03", errc::storage_unavailable, false, true, true},
    {"26000", errc::storage_unavailable, false, true, true},
    {"40001", errc::write_conflict, false, true, false},
    {"40P01", errc::write_conflict, false, true, false},
    {"42703", errc::unprocessable, true, false, false},
    {"42501", errc::storage_unavailable, false, false, false},
    {"44000", errc::constraint_violation, true, false, false},
    {"53100", errc::storage_unavailable, false, true, false},
    {"53300", errc::storage_unavailable, false, true, false},
    {"55P03", errc::write_conflict, false, true, false},
    {"57014", errc::storage_unavailable, false, true, false},
    {"57P01", errc::storage_unavailable, false, true, true},
    {"57P02", errc::storage_unavailable, false, true, true},
    {"57P03", errc::storage_unavailable, false, true, true},
    {"57P05", errc::storage_unavailable, false, true, true},
    {"58030", errc::storage_unavailable, false, true, false},
    {"F0000", errc::internal_error, false, false, false},
    {"XX000", errc::internal_error, false, false, false},
    {"P0001", errc::unprocessable, true, false, false},
    {"FG403", errc::resource_not_covered, false, false, false},
    {"FG412", errc::stale_fencing_token, false, false, false},
    {"FG428", errc::fencing_required, false, false, false},
    {"FG503", errc::storage_unavailable, false, true, false},
    {"P0002", errc::unprocessable, true, false, false},
    {"0A000", errc::unprocessable, true, false, false},
    {"SH001", errc::unprocessable, true, false, false},
};

}  // namespace

TEST(sqlstate_map, every_row_maps_as_documented) {
    for (const auto& r : rows) {
        SCOPED_TRACE(r.sqlstate);
        const auto f = to_failure(error_of(r.sqlstate));
        EXPECT_EQ(f.code, r.code);
        EXPECT_EQ(f.detail == "the words", r.message_shown);
        EXPECT_EQ(f.retry_after.has_value(), r.retry_after);
        EXPECT_EQ(f.facts.at("sqlstate").as_string(), r.sqlstate);
        EXPECT_EQ(rule_of(r.sqlstate).ends_session, r.ends_session);
        EXPECT_FALSE(f.outcome_unknown);
    }
}

TEST(sqlstate_map, every_row_of_the_table_is_tested) {
    std::set<std::string_view> decided;
    for (const auto& r : rows)
        decided.insert(rule_of(r.sqlstate).code);
    std::set<std::string_view> codes;
    for (const auto& rule : sqlstate_rules()) {
        EXPECT_TRUE(decided.contains(rule.code)) << rule.code;
        EXPECT_TRUE(codes.insert(rule.code).second) << rule.code << " has two rows";
    }
}

TEST(sqlstate_map, missing_guard_is_unavailable_with_its_cause) {
    const auto failure_of = [](const std::string& words) {
        return to_failure(parse_server_error("ERROR:  " + words + "\nLOCATION:  a, b.c:1\n"));
    };
    for (const auto* words :
         {"3F000: schema \"fencing\" does not exist", "42P01: Relation »fencing.guard« existiert nicht",
          "42883: function fencing.begin_write(text[], bigint) does not exist"}) {
        const auto f = failure_of(words);
        EXPECT_EQ(f.code, errc::storage_unavailable) << words;
        EXPECT_EQ(f.facts.at("cause").as_string(), "guard-missing") << words;
        EXPECT_TRUE(f.retry_after) << words;
    }
    for (const auto* words : {"3F000: schema \"shop\" does not exist", "42P01: relation \"orders\" does not exist",
                              "42601: syntax error at or near \"fencing.\""})
        EXPECT_FALSE(failure_of(words).facts.contains("cause")) << words;
    const auto missing =
        parse_server_error("ERROR:  42883: function fencing.entre(text) does not exist\nLOCATION:  a, b.c:1\n");
    EXPECT_EQ(to_failure(missing, statement{}).code, errc::unprocessable) << "the function of a caller";
}

TEST(sqlstate_map, resource_that_is_not_covered_is_named) {
    const auto detail_of = [](const std::string& facts) {
        return to_failure(parse_server_error("ERROR:  FG403: words\nDETAIL:  {" + facts + "}\nLOCATION:  a, b.c:1\n"))
            .detail;
    };
    EXPECT_EQ(detail_of(R"("resource": "seats/12b")"),
              "A row belongs to seats/12b, which the lease does not have for writing; nothing was changed.");
    const std::string unnamed = "A row belongs to a resource that the lease does not cover; nothing was changed.";
    EXPECT_EQ(detail_of(R"("resource": "a\nb", "name_fault": "has a control character")"), unnamed);
    EXPECT_EQ(detail_of(R"("resource": 7)"), unnamed);
}

TEST(sqlstate_map, violated_constraint_named_without_row) {
    const auto f = to_failure(parse_server_error(
        "ERROR:  23514: new row for relation \"inventory\" violates check constraint \"inventory_stock_check\"\n"
        "DETAIL:  Failing row contains (sku-1, -1, secret).\nSCHEMA NAME:  public\nTABLE NAME:  inventory\n"
        "CONSTRAINT NAME:  inventory_stock_check\nLOCATION:  ExecConstraints, execMain.c:2000\n"));
    EXPECT_EQ(f.code, errc::constraint_violation);
    EXPECT_EQ(f.facts.at("constraint").as_string(), "inventory_stock_check");
    EXPECT_EQ(f.detail, "new row for relation \"inventory\" violates check constraint \"inventory_stock_check\"");
}

TEST(sqlstate_map, null_that_is_refused_has_pointer_if_it_is_the_only_one) {
    const auto pointers = [](const std::vector<std::optional<std::string>>& values) {
        statement failed;
        for (const auto& value : values) {
            failed.bind(value);
            failed.pointers.push_back("/operations/0/set/" + std::to_string(failed.pointers.size()));
        }
        failed.bind(std::nullopt);  // not of the request
        std::vector<std::string> out;
        for (const auto& fault : to_failure(error_of("23502"), failed).errors)
            out.push_back(fault.pointer);
        return out;
    };
    EXPECT_EQ(pointers({"5", std::nullopt, "x"}), std::vector<std::string>{"/operations/0/set/1"});
    EXPECT_EQ(pointers({std::nullopt, std::nullopt}), std::vector<std::string>{});
    EXPECT_EQ(pointers({"5"}), std::vector<std::string>{});
}

TEST(sqlstate_map, position_in_statement_is_left_out) {
    const auto message = [](const std::string& words) {
        return parse_server_error("ERROR:  42P01: " + words + "\nLOCATION:  parserOpenTable, parse_relation.c:1392\n")
            .message;
    };
    EXPECT_EQ(message("relation \"public.evo\" does not exist at character 35"),
              "relation \"public.evo\" does not exist");
    EXPECT_EQ(message("no digit at character 12 of the line"), "no digit at character 12 of the line");
}

TEST(sqlstate_map, missing_grant_and_row_security_differ) {
    const auto grant = to_failure(parse_server_error(
        "ERROR:  42501: permission denied for table inventory\nLOCATION:  aclcheck_error, aclchk.c:2843\n"));
    EXPECT_EQ(grant.code, errc::storage_unavailable);
    EXPECT_EQ(grant.detail.find("inventory"), std::string::npos);
    EXPECT_FALSE(grant.may_be_repeated);
    EXPECT_NE(std::string(grant.facts.at("hint").as_string()).find("grant"), std::string::npos);
    for (const auto origin : {"ExecWithCheckOptions, execMain.c:2103", "exec_stmt_raise, pl_exec.c:3911"}) {
        const auto row = to_failure(parse_server_error(
            std::string("ERROR:  42501: new row violates row-level security policy\nLOCATION:  ") + origin + "\n"));
        EXPECT_EQ(row.code, errc::forbidden);
        EXPECT_EQ(row.detail, "new row violates row-level security policy");
        EXPECT_FALSE(row.retry_after.has_value());
    }
}

TEST(sqlstate_map, internal_code_raised_by_function_is_unprocessable) {
    const auto raised =
        to_failure(parse_server_error("ERROR:  XX000: out of stock\nLOCATION:  exec_stmt_raise, pl_exec.c:3911\n"));
    EXPECT_EQ(raised.code, errc::unprocessable);
    EXPECT_EQ(raised.detail, "out of stock");
    const auto fault =
        to_failure(parse_server_error("ERROR:  XX000: cache lookup failed\nLOCATION:  relation_open, relation.c:61\n"));
    EXPECT_EQ(fault.code, errc::internal_error);
    EXPECT_EQ(fault.detail.find("cache"), std::string::npos);
}

TEST(sqlstate_map, outdated_statements_are_told_from_other_errors) {
    const auto is_outdated = [](const char* sqlstate, const char* origin) {
        auto error = error_of(sqlstate);
        error.origin = origin;
        return is_outdated_statement(error);
    };
    EXPECT_TRUE(is_outdated("XX000", "getTypeInputInfo"));
    EXPECT_TRUE(is_outdated("0A000", "RevalidateCachedQuery"));
    EXPECT_TRUE(is_outdated("42804", "plpgsql_param_eval_recfield"));
    EXPECT_TRUE(is_outdated("26000", "FetchPreparedStatement"));
    EXPECT_FALSE(is_outdated("XX000", "exec_stmt_raise"));
    EXPECT_FALSE(is_outdated("XX001", "_bt_check_rel"));
    EXPECT_FALSE(is_outdated("0A000", "transformOnConflictArbiter"));
    EXPECT_FALSE(is_outdated("42804", "transformAssignedExpr"));
    EXPECT_FALSE(is_outdated("42703", "errorMissingColumn"));
}

TEST(sqlstate_map, unreadable_parameter_has_pointer) {
    statement failed;
    failed.pointers = {"/a", "/b"};
    auto error = error_of("22P02");
    error.parameter = 2;
    ASSERT_EQ(to_failure(error, failed).errors.size(), 1u);
    EXPECT_EQ(to_failure(error, failed).errors[0].pointer, "/b");
    for (const std::size_t unknown : {0, 3}) {
        error.parameter = unknown;
        EXPECT_TRUE(to_failure(error, failed).errors.empty());
    }
}

TEST(sqlstate_map, unavailable_storage_names_the_cause) {
    EXPECT_EQ(to_failure(error_of("53100")).detail, "PostgreSQL's disk is full; nothing was changed.");
    EXPECT_NE(to_failure(error_of("25006")).detail.find("read-only"), std::string::npos);
    EXPECT_NE(to_failure(error_of("57P03")).detail.find("starting up"), std::string::npos);
    EXPECT_EQ(to_failure(error_of("53999")).detail, "PostgreSQL did not execute the statement; nothing was changed.");
}

TEST(sqlstate_map, guard_refusal_has_only_contract_facts) {
    auto error = error_of("FG412");
    error.detail =
        R"({"resource": "a/1", "fencing_token": 3, "last_fencing_token": 9007199254740991, "relation": "hidden"})";
    const auto f = to_failure(error);
    EXPECT_EQ(f.facts.at("resource").as_string(), "a/1");
    EXPECT_EQ(f.facts.at("last_fencing_token").as_int64(), 9007199254740991);
    EXPECT_FALSE(f.facts.contains("relation"));
}

TEST(sqlstate_map, guard_refusal_without_json_has_only_code) {
    auto error = error_of("FG403");
    for (const auto* detail : {"{\"resource\": ", "{\"fencing_token\": 1e999}", "{\"fencing_token\": 0e999}"}) {
        error.detail = detail;
        EXPECT_EQ(to_failure(error).facts.size(), 1u) << detail;
    }
}

TEST(server_error, verbose_text_is_split_into_parts) {
    const auto e = parse_server_error(
        "ERROR:  FG403: resource not covered\nDETAIL:  {\"resource\": \"b\"}\nCONTEXT:  PL/pgSQL\nLOCATION:  x, "
        "y.c:1\n");
    EXPECT_EQ(e.sqlstate, "FG403");
    EXPECT_EQ(e.message, "resource not covered");
    EXPECT_EQ(e.detail, "{\"resource\": \"b\"}");
    EXPECT_FALSE(e.fatal);
}

TEST(server_error, forged_labels_only_shorten_message) {
    const auto e = parse_server_error(
        "ERROR:  23505: invalid \"x\nCONSTRAINT NAME:  forged\"\nDETAIL:  Key (a)=(x\nCONSTRAINT NAME:  forged) "
        "exists.\n"
        "CONSTRAINT NAME:  orders_pkey\nLOCATION:  f, g.c:1\n");
    EXPECT_EQ(e.message, "invalid \"x");
    EXPECT_EQ(e.constraint, "orders_pkey");
}

TEST(server_error, context_gives_number_of_parameter) {
    EXPECT_EQ(parameter_of("unnamed portal parameter $2 = '...'"), 2u);
    EXPECT_EQ(parameter_of("unnamed portal parameter $12"), 12u);
    EXPECT_EQ(parameter_of("unbenanntes Portal, Parameter $3 = '$1'"), 3u);
    EXPECT_EQ(parameter_of("PL/pgSQL function check_it(text) line 2 at RAISE\nunnamed portal parameter $1 = '...'"),
              1u);
    for (const auto other : {"", "SQL statement \"select $1\"", "PL/pgSQL function f$1(integer) line 3 at RAISE",
                             "unnamed portal parameter $1\nSQL function \"f\" statement 1", "JSON data, line 1: $1",
                             "costs $5 more", "costs $", "$99999999999999999999"}) {
        EXPECT_EQ(parameter_of(other), 0u) << other;
    }
    EXPECT_EQ(parse_server_error("ERROR:  22P02: invalid\nCONTEXT:  unnamed portal parameter $2 = '...'\n"
                                 "LOCATION:  pg_strtoint32, numutils.c:232\n")
                  .parameter,
              2u);
}

TEST(server_error, context_shows_whether_code_was_running) {
    EXPECT_TRUE(names_code("PL/pgSQL function f() line 2 at SQL statement"));
    EXPECT_TRUE(names_code("SQL function \"f\" statement 1\nunnamed portal parameter $1 = '...'"));
    EXPECT_FALSE(names_code("unnamed portal parameter $1 = '...'"));
    EXPECT_FALSE(names_code(""));
}

TEST(server_error, fatal_error_ends_session) {
    const auto e =
        parse_server_error("FATAL:  57P01: terminating connection due to administrator command\nLOCATION:  a, b.c:1\n");
    EXPECT_TRUE(e.fatal);
    EXPECT_EQ(e.sqlstate, "57P01");
}

TEST(server_error, client_error_has_no_sqlstate) {
    const auto e = parse_server_error("server closed the connection unexpectedly\n");
    EXPECT_EQ(e.sqlstate, "");
    EXPECT_EQ(e.message, "server closed the connection unexpectedly");
}
