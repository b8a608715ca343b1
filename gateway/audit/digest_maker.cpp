#include <gateway/audit/digest_maker.hpp>

#include <gateway/audit/history_feed.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/pg/history/history_digest.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/random.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

namespace fencegate::audit {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr steady_clock::duration first_delay = 1s;
constexpr steady_clock::duration delay_while_unsettled = 200ms;
constexpr steady_clock::duration delay_between_digests = 20ms;
constexpr steady_clock::duration delay_while_busy = 1s;
constexpr std::string_view query_canceled = "57014";
constexpr auto step_timeout = 30s;
constexpr std::size_t lines_per_append = 1'000;

/// A file that is opened to append to it, locked against other gateways. Throws std::runtime_error.
class locked_file {
  public:
    struct state {
        dev_t device = 0;
        ino_t inode = 0;
        off_t size = 0;
        friend bool operator==(const state&, const state&) = default;
    };

    explicit locked_file(const std::string& name)
        : name_(name), descriptor_(::open(name.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0640)) {
        if (descriptor_ < 0) fail("");
        for (int tries = 0; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0; ++tries) {
            if (errno == EWOULDBLOCK && tries < lock_tries_max) {
                std::this_thread::sleep_for(lock_retry_interval);
                continue;
            }
            const int fault = errno;
            ::close(descriptor_);
            errno = fault;
            fail("it can't be locked: ");
        }
    }
    ~locked_file() { ::close(descriptor_); }
    locked_file(const locked_file&) = delete;
    locked_file& operator=(const locked_file&) = delete;

    state find_state() const {
        struct ::stat found {};
        if (::fstat(descriptor_, &found) != 0) fail("");
        return {found.st_dev, found.st_ino, found.st_size};
    }

    /// Adds lines as a whole, in a line of their own.
    void append(std::string text) const {
        const off_t size = find_state().size;
        char last = 0;
        if (size > 0 && ::pread(descriptor_, &last, 1, size - 1) == 1 && last != '\n') text.insert(0, 1, '\n');
        if (::write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
            ::fsync(descriptor_) == 0)
            return;
        const int fault = errno;
        // Without a line that is cut off, as on a full disk.
        const bool is_whole = ::ftruncate(descriptor_, size) == 0;
        errno = fault;
        fail(is_whole ? "" : "its last line is cut off: ");
    }

  private:
    static constexpr int lock_tries_max = 20;
    static constexpr auto lock_retry_interval = 10ms;

    [[noreturn]] void fail(const char* what) const {
        throw std::runtime_error(name_ + ": " + what + std::strerror(errno));
    }

    const std::string& name_;
    int descriptor_;
};

/// The file outside of PostgreSQL: a line for each digest. Lines are never changed: if the database has another digest
/// of a number that the file has, both are there. It may be renamed: then a new one has the digests from then on.
class digest_file {
  public:
    explicit digest_file(std::string name) : name_(std::move(name)) {}

    /// Appends the digests that the file lacks. Throws std::runtime_error if it can't be written.
    ///
    /// Out: false if the database lacks a digest that the file has.
    bool append_missing(pg::session& session) {
        if (name_.empty()) return true;
        const locked_file file(name_);
        read_new_lines(file.find_state());
        bool same = true;
        if (last_number_ > 0) {
            const auto stored = pg::read_digests(session, last_number_ - 1, 1);
            same = !stored.empty() && pg::line_of(stored.front()) == *last_;
        }
        // Set back: every digest is compared, because the two may differ from any number on.
        const std::set<std::string> known = same ? std::set<std::string>() : hash_lines();
        if (!same) last_number_ = 0;
        for (;;) {
            const auto digests = pg::read_digests(session, last_number_, lines_per_append);
            if (digests.empty()) return same;
            std::string text;
            for (const pg::signed_digest& digest : digests) {
                last_ = pg::line_of(digest);
                if (!known.contains(sha256_hex(*last_))) text += *last_ + "\n";
            }
            append(file, std::move(text));
            last_number_ += static_cast<std::int64_t>(digests.size());
        }
    }

  private:
    /// Reads the last digest, of the lines that were added since. Others, such as one that a crash cut off, are left
    /// out. A file without any is continued after the last digest of the one before, which was renamed.
    void read_new_lines(const locked_file::state& now) {
        if (last_ && now == state_) return;
        std::ifstream in(name_);
        if (last_ && now.device == state_.device && now.inode == state_.inode && now.size > state_.size)
            in.seekg(state_.size);
        if (!last_) {
            last_.emplace();
            last_number_ = 0;
        }
        std::string line;
        while (std::getline(in, line)) {
            const auto entry = read_entry(line);
            if (!entry) continue;
            last_number_ = entry->number;
            last_ = line;
        }
        state_ = now;
    }

    static std::optional<pg::digest_entry> read_entry(std::string_view line) {
        const auto digest = pg::parse_line(line);
        return digest ? pg::parse_digest(digest->entry) : std::nullopt;
    }

    std::set<std::string> hash_lines() const {
        std::set<std::string> out;
        std::string line;
        std::ifstream in(name_);
        while (std::getline(in, line))
            out.insert(sha256_hex(line));
        return out;
    }

    void append(const locked_file& file, std::string text) {
        if (text.empty()) return;
        try {
            file.append(std::move(text));
            state_ = file.find_state();
        } catch (const std::runtime_error&) {
            last_.reset();  // is read again
            throw;
        }
    }

    std::string name_;
    std::optional<std::string> last_;  ///< The last line; empty before it was read.
    std::int64_t last_number_ = 0;
    locked_file::state state_;  ///< When last_ was read or appended.
};

}  // namespace

struct digest_maker::impl final : runtime::periodic {
    impl(const audit_config& cfg, std::string name, pg::database& d, asio::io_context& i)
        : interval(cfg.digest_interval), gateway(std::move(name)), database(d), io(i), file(cfg.digest_file) {
        if (cfg.digest_key.empty()) return;
        keys.push_back(read_private_key(cfg.digest_key));
        for (const std::string& pem : cfg.digest_public_keys)
            keys.push_back(read_public_key(pem));
    }

    asio::awaitable<duration> run_once() override {
        auto work = [self = std::static_pointer_cast<impl>(shared_from_this())](pg::session& session) {
            return self->run_step(session);
        };
        const auto done =
            co_await database.run(pg::worker_choice::history(), steady_clock::now() + step_timeout, std::move(work));
        if (done) co_return *done;
        // Another gateway makes one.
        if (done.error().code != errc::write_conflict && !is_stopping())
            spdlog::warn("no digest of the history was made: {}", done.error().detail);
        co_return std::min<duration>(interval, 5s);
    }

    /// Makes the next digest if it is due. Out: the pause before the next step.
    duration run_step(pg::session& session) {
        // A step whose caller has given up may still run, perhaps on a file that hangs: no further worker waits for it.
        const std::unique_lock hold(mutex, std::try_to_lock);
        if (!hold) return delay_while_busy;
        append_to_file(session);
        const auto last = pg::find_last_digest(session, keys);
        // A replacement has no new rows.
        const auto age = last.entry && !last.entry->replaces ? std::chrono::milliseconds(last.age_ms) : interval;
        auto tail = pg::read_digest_tail(session);
        const auto history_end = tail.history.last_id, changes_end = tail.changes.last_id;
        // PostgreSQL was replaced by an older state.
        if (history_end < seen_history_end || changes_end < seen_changes_end) {
            history = {};
            changes = {};
            due.reset();
        }
        seen_history_end = history_end;
        seen_changes_end = changes_end;
        const auto history_settled = history.advance(std::move(tail.history));
        const auto changes_settled = changes.advance(std::move(tail.changes));
        if (!due) {
            if (age < interval) {
                note_complete(steady_clock::now() - age);
                return interval - age;
            }
            due = {history_end, changes_end, steady_clock::now()};
        }
        if (!history_settled || !changes_settled || *history_settled < due->history_to ||
            *changes_settled < due->changes_to)
            return delay_while_unsettled;
        const pg::digest_source source{.keys = keys,
                                       .gateway = gateway,
                                       .made_at = runtime::to_rfc3339(std::chrono::system_clock::now()),
                                       .salts = {runtime::random_hex128(), runtime::random_hex128()},
                                       .history_to = due->history_to,
                                       .changes_to = due->changes_to,
                                       .ids_max = ids_max};
        pg::made_digest result;
        try {
            result = pg::make_digest(session, source);
        } catch (const pg::statement_failed& e) {
            if (e.error.sqlstate != query_canceled || ids_max == 1) throw;
            ids_max /= 2;  // the rows were too large for the time of a statement
            return delay_between_digests;
        }
        ids_max = std::min(2 * ids_max, pg::digest_ids_max);
        if (result.unsigned_entries != unsigned_entries && result.unsigned_entries > 0)
            spdlog::error(
                "the last {} digests of the history are signed by no key of this gateway, and were left out: "
                "somebody else made them, or audit.digest_public_key_files lacks the key of another gateway",
                result.unsigned_entries);
        unsigned_entries = result.unsigned_entries;
        if (result.made) spdlog::info("digest of the history: {}", pg::line_of(*result.made));
        append_to_file(session);
        if (!result.complete) return delay_between_digests;
        note_complete(due->since);
        due.reset();
        return interval;
    }

    /// A file that is not written is as bad as no digest.
    void note_complete(steady_clock::time_point at) {
        if (!file_fails) complete_at = std::max(complete_at.load(), at);
    }

    void append_to_file(pg::session& session) {
        try {
            if (!file.append_missing(session) && !is_stopping())
                spdlog::error(
                    "the digests of the history were set back: the database lacks some that audit.digest_file has; "
                    "`fencegate verify --digests` says which rows differ");
            file_fails = false;
        } catch (const pg::session_lost&) {
            throw;
        } catch (const pg::statement_failed&) {
            throw;
        } catch (const std::runtime_error& e) {
            if (!file_fails) spdlog::error("audit.digest_file: {}", e.what());
            file_fails = true;
        }
    }

    struct wanted_end {
        std::int64_t history_to, changes_to;
        steady_clock::time_point since;
    };

    const std::chrono::milliseconds interval;
    const std::string gateway;
    pg::database& database;
    asio::io_context& io;
    std::vector<pkey_handle> keys;  ///< The first one signs. Empty: no digests.

    std::mutex mutex;  ///< Of those below.
    digest_file file;
    history_horizon history, changes;
    std::int64_t seen_history_end = 0, seen_changes_end = 0;  ///< The last ids in the step before.
    std::int64_t ids_max = pg::digest_ids_max;
    std::optional<wanted_end> due;  ///< What the digest that is due has to cover.
    std::int64_t unsigned_entries = 0;

    bool file_fails = false;

    std::atomic<steady_clock::time_point> complete_at{steady_clock::now()};
};

digest_maker::digest_maker(const audit_config& cfg, std::string gateway, pg::database& database, asio::io_context& io)
    : impl_(std::make_shared<impl>(cfg, std::move(gateway), database, io)) {}

digest_maker::~digest_maker() {
    impl_->stop();
}

void digest_maker::start() {
    if (!impl_->keys.empty()) impl_->start(impl_->io.get_executor(), first_delay);
}

std::optional<steady_clock::duration> digest_maker::lag() const {
    if (impl_->keys.empty()) return std::nullopt;
    return steady_clock::now() - impl_->complete_at.load();
}

}  // namespace fencegate::audit
