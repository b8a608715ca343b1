#include <gateway/pg/write/kept_outcome.hpp>

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

namespace fencegate::pg {
namespace {

write_request sample_request() {
    write_request out;
    out.write_id = "01a1fc68-4bc4-7371-881a-fddb4432f9eb";
    out.token = lockcore::fencing_token{34};
    out.initiator.principal = "orders";
    out.key = idempotency_key{"k\\\"1", std::string(64, 'a'), std::chrono::milliseconds(5)};
    return out;
}

write_outcome sample_outcome() {
    write_outcome out;
    out.write_id = sample_request().write_id;
    out.token = lockcore::fencing_token{34};
    out.fences.push_back({"inventory/sku-1", 35});
    out.results.push_back({1, R"([{"price": 1.10, "id": 12345678901234567890}])", false});
    out.results.push_back({2, "", false});
    out.results.back().total = 9;
    out.results.push_back({0, R"("a\\b")", true});
    out.sealed = true;
    return out;
}

TEST(pg_kept_outcome, outcome_read_back_with_all_digits) {
    const auto back = read_kept(write_kept(sample_request(), sample_outcome()));
    ASSERT_TRUE(back);
    const auto was = sample_outcome();
    EXPECT_EQ(back->write_id, was.write_id);
    EXPECT_EQ(back->token, was.token);
    ASSERT_EQ(back->fences.size(), 1U);
    EXPECT_EQ(back->fences[0].resource, "inventory/sku-1");
    EXPECT_EQ(back->fences[0].last_fencing_token, 35U);
    ASSERT_EQ(back->results.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(back->results[i].rows_affected, was.results[i].rows_affected);
        EXPECT_EQ(back->results[i].json, was.results[i].json);
        EXPECT_EQ(back->results[i].is_call, was.results[i].is_call);
        EXPECT_EQ(back->results[i].total, was.results[i].total);
    }
    EXPECT_TRUE(back->sealed);
    EXPECT_TRUE(back->replayed);
    EXPECT_FALSE(back->rows_left_out);
}

TEST(pg_kept_outcome, refusal_read_back_with_its_facts) {
    failure why = make_failure(errc::constraint_violation, "no");
    why.errors.push_back({"/operations/0", "why"});
    why.facts["sqlstate"] = "23514";
    why.facts["operation"] = 0;
    const auto back = read_kept(write_kept(sample_request(), why));
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().code, errc::constraint_violation);
    EXPECT_EQ(back.error().detail, "no");
    ASSERT_EQ(back.error().errors.size(), 1U);
    EXPECT_EQ(back.error().errors[0].pointer, "/operations/0");
    EXPECT_EQ(boost::json::serialize(back.error().facts),
              R"({"sqlstate":"23514","operation":0,"write_id":"01a1fc68-4bc4-7371-881a-fddb4432f9eb"})");
    EXPECT_TRUE(back.error().replayed);
}

TEST(pg_kept_outcome, refusal_with_a_number_out_of_range_is_refused) {
    for (const std::string number : {"0e999", "1e999", "[-1e999]", R"({"a":0e309})"}) {
        const auto back =
            read_kept(R"({"refusal":"unprocessable","detail":"no","errors":[],"facts":{"a":)" + number + "}}");
        ASSERT_FALSE(back);
        EXPECT_EQ(back.error().code, errc::internal_error) << number;
    }
}

TEST(pg_kept_outcome, large_outcome_kept_without_rows) {
    auto large = sample_outcome();
    large.results[0].json = '[' + std::string(kept_bytes_max, ' ') + ']';
    const auto text = write_kept(sample_request(), large);
    EXPECT_LT(text.size(), 1024U);
    const auto back = read_kept(text);
    ASSERT_TRUE(back);
    EXPECT_TRUE(back->rows_left_out);
    EXPECT_EQ(back->results[0].rows_affected, 1);
    EXPECT_EQ(back->results[0].json, "");
    EXPECT_EQ(back->results[2].json, "");
    EXPECT_TRUE(back->results[2].is_call);
}

TEST(pg_kept_outcome, only_repeatable_refusals_are_kept) {
    for (const errc code : {errc::expectation_failed, errc::constraint_violation, errc::unprocessable})
        EXPECT_TRUE(is_kept(make_failure(code, "")));
    for (const errc code :
         {errc::write_conflict, errc::storage_unavailable, errc::overloaded, errc::internal_error, errc::shutting_down,
          errc::stale_fencing_token, errc::resource_not_covered, errc::fencing_required}) {
        EXPECT_FALSE(is_kept(make_failure(code, "")));
    }
    failure unknown = make_failure(errc::expectation_failed, "");
    unknown.outcome_unknown = true;
    EXPECT_FALSE(is_kept(unknown));
}

TEST(pg_kept_outcome, claim_states_decide_the_answer) {
    EXPECT_FALSE(read_key_state("new", ""));
    EXPECT_TRUE(read_key_state("kept", write_kept(sample_request(), sample_outcome()))->has_value());
    EXPECT_EQ(read_key_state("other", "")->error().code, errc::idempotency_mismatch);
    EXPECT_EQ(read_key_state("running", "")->error().code, errc::idempotency_in_progress);
    EXPECT_EQ(read_key_state("kept", "{}")->error().code, errc::internal_error);
}

TEST(pg_kept_outcome, parameters_are_escaped_arrays) {
    const auto request = sample_request();
    const auto got = keep_outcomes_parameters({{&request, R"({"a":1})"}});
    ASSERT_EQ(got.size(), 5U);
    EXPECT_EQ(got[0], R"({"orders"})");
    EXPECT_EQ(got[1], R"({"k\\\"1"})");
    EXPECT_EQ(got[2], R"({"\\x)" + std::string(64, 'a') + R"("})");
    EXPECT_EQ(got[3], R"({"{\"a\":1}"})");
    EXPECT_EQ(got[4], "5");
}

}  // namespace
}  // namespace fencegate::pg
