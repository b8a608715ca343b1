#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/text_receiver.hpp>
#include <gateway/pg/connection/write_session.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg::test {

using row = std::vector<std::optional<std::string>>;

/// Returns an answer in the form of libpq.
answer_rows make_rows(const std::vector<row>& rows);

answer_rows make_affected(int rows);

/// Returns a budget that is large enough for every answer of a test.
inline memory_budget& large_budget() {
    static memory_budget out(64 << 20);
    return out;
}

/// Returns the elements of an array parameter whose texts contain neither quotes nor commas.
std::vector<std::string> elements(const std::optional<std::string>& array);

server_error make_error(std::string sqlstate);

/// How a message fails.
enum class fault {
    lost_before,  ///< The connection breaks before the message reaches the server.
    lost_after,   ///< The server executes the message, but its answer is lost.
    refused       ///< The server refuses the message with `fault_sqlstate`.
};

/// A fake PostgreSQL with the parts of the schema that the write path needs: transactions, guards, keys and committed
/// writes. Each message (a round trip, a preparation, a command, a connection) is counted, and one of them can fail.
class fake_session final : public write_session, public catalog_source {
  public:
    // The faults to inject.
    std::optional<std::size_t> fault_at{};  ///< Counted from 0.
    fault kind = fault::lost_before;
    std::string fault_sqlstate = "55P03";
    bool fault_in_code = false;      ///< The refused statement had begun to execute a function.
    std::size_t fault_step = 0;      ///< The statement of a refused round trip that fails.
    bool stays_unreachable = false;  ///< New connections fail too.
    bool cut = false;
    bool reused = false;            ///< The session has served an earlier job.
    std::string refused_text{};     ///< Statements that contain this text are always refused.
    std::string unprepared_text{};  ///< Statements that contain this text can't be prepared.

    // The state of the server.
    std::map<std::string, std::uint64_t> fences{};
    std::map<std::string, std::pair<std::string, std::string>> keys{};  ///< State and outcome.
    std::multiset<std::string> committed{};                             ///< Write ids.
    std::vector<std::string> kept{};                                    ///< Outcomes, committed.
    std::vector<std::string> recorded{};                                ///< Rows of the history, committed.
    std::vector<std::string> sealed{};
    std::map<std::string, std::function<answer_rows(const compat::parameters&)>> answers{};

    // The messages so far.
    std::vector<std::string> log{};
    std::size_t messages = 0;
    bool open = false;
    bool connected = true;

    std::string prepare(const std::string& sql) override;

    bool is_prepared(const std::string& sql) const override {
        return std::ranges::find(prepared_, sql) != prepared_.end();
    }

    round_trip run(std::span<const prepared_call> calls, statement_errors returned) override;

    void command(const std::string& sql) override;

    bool in_transaction() override { return connected && open && !failed_; }
    void mark_user_code_executed() override { log.emplace_back("user code"); }

    void connect() override {
        log.emplace_back("connect");
        drop();
        if (stays_unreachable) throw session_lost("unreachable", "PostgreSQL is unreachable");
        connected = true;
        send([] {});
    }
    void drop() override {
        end();
        prepared_.clear();
        connected = false;
    }
    bool was_cut() const override { return cut; }
    void begin_commit() override {
        if (cut) throw session_lost("cut");
    }
    void begin_transaction() override {}
    bool is_reused() const override { return reused; }
    std::chrono::steady_clock::time_point connected_since() const override { return since; }
    void expect_answer_by(deadline) override {}
    const postgres_config& settings() const override { return settings_; }

    std::shared_ptr<const catalog> get() override {
        require_connection();
        return known;
    }
    std::shared_ptr<const catalog> refresh(const std::shared_ptr<const catalog>&) override {
        log.emplace_back("refresh");
        if (newer && !just_read) known = newer;
        return known;
    }
    std::shared_ptr<const catalog> refresh_since(const std::shared_ptr<const catalog>&,
                                                 std::chrono::steady_clock::time_point) override {
        log.emplace_back("refresh");
        if (unreadable) throw std::runtime_error("unreadable");
        if (newer) known = newer;
        return known;
    }

    std::chrono::steady_clock::time_point since{};
    std::shared_ptr<const catalog> known = std::make_shared<catalog>();
    std::shared_ptr<const catalog> newer{};
    bool just_read = false;   ///< refresh() returns `known`, because the interval has not passed.
    bool unreadable = false;  ///< refresh_since() fails.

    bool logged(const std::string& text) const {
        return std::ranges::any_of(log, [&](const auto& line) { return line.find(text) != std::string::npos; });
    }

  private:
    struct changes {
        std::vector<std::string> writes, kept, recorded, sealed;
    };

    static std::string shorten(const std::string& sql);

    /// Counts and executes a message that is no round trip.
    void send(const std::function<void()>& effect);

    [[noreturn]] void lose() {
        drop();
        throw session_lost("injected");
    }

    void require_connection() {
        if (connected) return;
        if (stays_unreachable) throw session_lost("unreachable", "PostgreSQL is unreachable");
        connected = true;
    }

    void end() {
        open = failed_ = false;
        pending_ = {};
    }

    void commit();

    row guard(const std::string& resource, const std::string& token);

    answer_rows perform(const prepared_call& call);

    postgres_config settings_;
    std::vector<std::string> prepared_;
    bool failed_ = false;
    changes pending_;
};

/// Returns a write with one update on `resources`, which the fake can execute.
write_request make_request(const std::string& id, const std::vector<std::string>& resources, std::uint64_t token = 7);

/// Returns a catalog that fits make_request().
std::shared_ptr<catalog> make_catalog(bool joins_updates = false);

}  // namespace fencegate::pg::test
