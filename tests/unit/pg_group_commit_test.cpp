#include "pg_fake_session.hpp"

#include <gateway/pg/write/group_commit.hpp>

#include <gtest/gtest.h>

#include <boost/asio/system_executor.hpp>

#include <map>
#include <string>
#include <vector>

namespace fencegate::pg {
namespace {

using test::fake_session;
using test::fault;
using test::make_rows;
using clock = std::chrono::steady_clock;

/// The answer to a caller: `durable`, `lost`, or `unknown`.
enum class outcome { nothing, durable, lost, unknown };

class read_caller final : public caller_awaiting<bool> {
  public:
    void answer(result<bool> value) noexcept override {
        EXPECT_EQ(received, outcome::nothing) << "answered twice";
        received = !value ? outcome::unknown : *value ? outcome::durable : outcome::lost;
    }
    void give_up(bool) noexcept override {}
    boost::asio::any_io_executor executor() const override { return boost::asio::system_executor(); }

    outcome received = outcome::nothing;
};

class flush_test : public ::testing::Test {
  protected:
    flush_test() {
        session.answers["pg_current_xact_id"] = [](const auto&) { return make_rows({{"7", "7", ""}}); };
    }

    /// A transaction of `ids` that began at `since`.
    pending_durability transaction(const std::vector<std::string>& ids, clock::time_point since, deadline until) {
        std::vector<undurable_write> data;
        for (const auto& id : ids) {
            writes[id] = outcome::nothing;
            data.push_back(
                {id, "r" + id, until, nullptr, [this, id](const std::optional<failure>& why) {
                     EXPECT_EQ(writes[id], outcome::nothing) << "answered twice";
                     writes[id] = !why ? outcome::durable : why->outcome_unknown ? outcome::unknown : outcome::lost;
                 }});
        }
        return {since, until, nullptr, std::move(data)};
    }

    pending_durability snapshot(clock::time_point server_ran_at) {
        reader = std::make_shared<read_caller>();
        return {server_ran_at, soon, reader, undurable_read{reader}};
    }

    void flush_all() { flush_all(session); }

    void flush_all(fake_session& used) {
        std::vector<pending_durability> work;
        work.push_back(transaction({"1", "2"}, begun, soon));
        work.push_back(transaction({"3"}, begun, soon));
        work.push_back(snapshot(begun));
        flush.run_batch(used, std::move(work));
    }

    postgres_config cfg;
    group_commit flush{cfg};
    fake_session session;
    clock::time_point begun = clock::now();
    deadline soon = begun + std::chrono::seconds(10);
    std::map<std::string, outcome> writes;
    std::shared_ptr<read_caller> reader;
};

TEST_F(flush_test, one_commit_answers_all) {
    flush_all();
    EXPECT_EQ(writes, (std::map<std::string, outcome>{
                          {"1", outcome::durable}, {"2", outcome::durable}, {"3", outcome::durable}}));
    EXPECT_EQ(reader->received, outcome::durable);
    EXPECT_EQ(session.messages, 2U) << "the statement was prepared, and run";
}

TEST_F(flush_test, newer_session_transaction_looked_up) {
    session.since = clock::now() + std::chrono::seconds(1);
    session.committed = {"1"};
    flush_all();
    EXPECT_EQ(writes,
              (std::map<std::string, outcome>{{"1", outcome::durable}, {"2", outcome::durable}, {"3", outcome::lost}}))
        << "the first write identifies its transaction";
    EXPECT_EQ(reader->received, outcome::lost) << "to be read again";
    EXPECT_FALSE(session.logged("connect")) << "connecting may take as long as its caller waits";
}

TEST_F(flush_test, each_message_lost_answers_stay_true) {
    for (std::size_t at = 0; at < 6; ++at) {
        for (const auto kind : {fault::lost_before, fault::lost_after, fault::refused}) {
            for (const bool survived : {true, false}) {
                SCOPED_TRACE("message " + std::to_string(at) + " fault " + std::to_string(static_cast<int>(kind)));
                group_commit fresh(cfg);
                fake_session failing;
                failing.answers = session.answers;
                failing.fault_at = at;
                failing.kind = kind;
                failing.since = at > 1 ? clock::now() + std::chrono::seconds(1) : clock::time_point{};
                if (survived) failing.committed = {"1", "3"};
                std::vector<pending_durability> work;
                work.push_back(transaction({"1", "2"}, begun, soon));
                work.push_back(transaction({"3"}, begun, soon));
                work.push_back(snapshot(begun));
                fresh.run_batch(failing, std::move(work));
                for (const auto& [id, received] : writes)
                    EXPECT_EQ(received, survived ? outcome::durable : outcome::lost) << id;
                EXPECT_EQ(reader->received, outcome::lost);
            }
        }
    }
}

TEST_F(flush_test, unreachable_server_outcome_unknown_at_deadline) {
    session.connected = false;
    session.stays_unreachable = true;
    std::vector<pending_durability> work;
    work.push_back(transaction({"1"}, begun, clock::now() + std::chrono::milliseconds(30)));
    flush.run_batch(session, std::move(work));
    EXPECT_EQ(writes["1"], outcome::unknown);
}

TEST_F(flush_test, lookup_is_in_order_of_resources) {
    session.since = clock::now() + std::chrono::seconds(1);
    std::vector<std::string> asked;
    session.answers["write_landed"] = [&asked](const compat::parameters& values) {
        asked = test::elements(values[1]);
        return make_rows({{"f", ""}, {"t", ""}, {"f", ""}});
    };
    std::vector<pending_durability> work;
    for (const auto* id : {"3", "1", "2"})
        work.push_back(transaction({id}, begun, soon));
    flush.run_batch(session, std::move(work));
    EXPECT_EQ(asked, (std::vector<std::string>{"r1", "r2", "r3"}));
    EXPECT_EQ(writes,
              (std::map<std::string, outcome>{{"1", outcome::lost}, {"2", outcome::durable}, {"3", outcome::lost}}));
}

TEST_F(flush_test, function_not_granted_flush_unavailable) {
    EXPECT_TRUE(flush.is_available());
    session.refused_text = "pg_current_xact_id";
    session.fault_sqlstate = "42501";
    session.committed = {"1", "3"};
    flush_all();
    EXPECT_FALSE(flush.is_available());
    EXPECT_EQ(writes["1"], outcome::durable) << "looked up instead";
    const auto caller = std::make_shared<read_caller>();
    flush.answer_when_durable(begun, soon, caller);
    EXPECT_EQ(caller->received, outcome::durable) << "from then on none is visible before it is on disk";
}

TEST_F(flush_test, reads_alone_no_commit_if_log_is_on_disk) {
    std::optional<std::string> always;
    session.answers["pg_current_xact_id"] = [&always](const compat::parameters& values) {
        always = values[0];
        return make_rows({{"7", std::nullopt, std::nullopt}});
    };
    std::vector<pending_durability> work;
    work.push_back(snapshot(begun));
    flush.run_batch(session, std::move(work));
    EXPECT_EQ(always, "false");
    EXPECT_EQ(reader->received, outcome::durable);
}

TEST_F(flush_test, proof_covers_only_older_transactions) {
    flush_all();
    snapshot_state state;
    state.seen = snapshot_state::durability::replicated;
    state.transaction_end = 8;
    EXPECT_TRUE(flush.is_durable(state)) << "the marker's own id was 7, and no other transaction ran";
    state.transaction_end = 9;
    EXPECT_FALSE(flush.is_durable(state));
    state.transaction_end = 8;
    state.connected_since = clock::now() + std::chrono::seconds(1);
    EXPECT_FALSE(flush.is_durable(state)) << "the server may have crashed in between";
}

}  // namespace
}  // namespace fencegate::pg
