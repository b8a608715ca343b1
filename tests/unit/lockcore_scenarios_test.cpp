// Runs tests/scenarios/*.txt against the protocol's machines and compares their output with what the file expects.
// With FENCEGATE_REWRITE_SCENARIOS=1 in the environment it rewrites the files instead, to be reviewed as a diff.
// tests/scenarios/README.md describes the language.
#include <proto/acquire_machine.hpp>
#include <proto/majority_round.hpp>
#include <proto/node_supervisor.hpp>
#include <proto/wait_queue.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

/// One line of a scenario: a word, then values, then `name=value`.
class command_line {
  public:
    explicit command_line(const std::string& line) {
        std::istringstream in(line);
        in >> verb;
        for (std::string word; in >> word;) {
            const std::size_t equals = word.find('=');
            if (equals == std::string::npos) {
                plain_.push_back(word);
            } else {
                named_[word.substr(0, equals)] = word.substr(equals + 1);
            }
        }
    }
    std::string verb;

    std::string text() {
        if (used_ == plain_.size()) throw std::invalid_argument(verb + ": a value is missing");
        return plain_[used_++];
    }
    std::uint64_t number() { return std::stoull(text()); }
    node_index node() { return static_cast<node_index>(number()); }
    bool has_more() const { return used_ < plain_.size(); }
    std::string rest() {
        std::string all;
        while (has_more())
            all += (all.empty() ? "" : " ") + text();
        return all;
    }
    std::string text(const std::string& name, std::string default_value) {
        const auto found = named_.find(name);
        if (found == named_.end()) return default_value;
        std::string value = found->second;
        named_.erase(found);
        return value;
    }
    std::uint64_t number(const std::string& name, std::uint64_t default_value) {
        return std::stoull(text(name, std::to_string(default_value)));
    }
    milliseconds ms(const std::string& name, std::int64_t default_value) {
        return milliseconds{std::stoll(text(name, std::to_string(default_value)))};
    }
    /// Throws if a value was not read, because an ignored value would change the meaning of the scenario.
    void check_no_rest() const {
        if (has_more() || !named_.empty()) throw std::invalid_argument(verb + ": has more than it takes");
    }

  private:
    std::vector<std::string> plain_;
    std::size_t used_ = 0;
    std::map<std::string, std::string> named_;
};

reply_status status_of(const std::string& word) {
    static const std::map<std::string, reply_status> words{{"ok", reply_status::ok},
                                                           {"held", reply_status::held},
                                                           {"lost", reply_status::lost},
                                                           {"stale", reply_status::stale},
                                                           {"overflow", reply_status::overflow},
                                                           {"exhausted", reply_status::exhausted},
                                                           {"own", reply_status::own},
                                                           {"kept", reply_status::other_holds},
                                                           {"uninit", reply_status::not_admitted},
                                                           {"unreachable", reply_status::unreachable},
                                                           {"timeout", reply_status::timeout},
                                                           {"broken", reply_status::broken},
                                                           {"error", reply_status::error}};
    return words.at(word);
}

std::string nodes_in(const node_set& set) {
    std::string out;
    for (std::size_t n = 0; n < nodes_max; ++n) {
        if (set[n]) out += " " + std::to_string(n);
    }
    return out.empty() ? " none" : out;
}

std::string in_ms(milliseconds m) {
    return std::to_string(m.count()) + " ms";
}

class machine {
  public:
    virtual ~machine() = default;
    /// Executes a command and returns the output, line by line.
    virtual std::string execute(command_line& line) = 0;
};

class acquire_interpreter final : public machine {
  public:
    explicit acquire_interpreter(command_line& line) : a_(line.number("nodes", 5)) {}

    std::string execute(command_line& line) override {
        if (line.verb == "acquire") return describe(a_.start());
        if (line.verb == "acquired") {
            const node_index node = line.node();
            node_reply r;
            r.status = status_of(line.text());
            if (r.status == reply_status::ok) r.value = line.number();
            r.remaining = line.ms("left", 0);
            if (r.status == reply_status::held) r.value = line.number("token", 0);
            if (r.status == reply_status::own) {
                r.text = std::string(32, line.text("of", "a").front()) + " " + line.text("token", "1") +
                         " 0 1000 0 5 -\np\nme\n\n\n\n";
            }
            return describe(a_.acquire_answered(node, r));
        }
        if (line.verb == "confirmed") {
            const node_index node = line.node();
            const fencing_token sent{line.number()};
            node_reply r;
            r.status = status_of(line.text());
            if (r.status == reply_status::stale) r.value = line.number();
            return describe(a_.confirm_answered(node, sent, r));
        }
        if (line.verb == "undo") return "undo on" + nodes_in(a_.undo_targets()) + "\n";
        if (line.verb == "remaining") return "free in " + in_ms(a_.remaining()) + "\n";
        if (line.verb == "own") {
            const auto own = a_.own_lease();
            return own ? "own lease " + std::string(own->attempt_id.str().substr(0, 1)) + " under " +
                             std::to_string(value_of(own->token)) + "\n"
                       : "no own lease\n";
        }
        throw std::invalid_argument("acquire does not know " + line.verb);
    }

  private:
    std::string describe(const acquire_machine::step& s) {
        std::string out;
        if (s.targets.any()) {
            out += s.kind == command_kind::acquire ? "send ACQUIRE to"
                                                   : "send CONFIRM(" + std::to_string(value_of(s.token)) + ") to";
            out += nodes_in(s.targets) + "\n";
        }
        constexpr std::array names{"pending", "granted", "locked", "no quorum"};
        out += names.at(static_cast<std::size_t>(a_.outcome()));
        out += ": T " + std::to_string(value_of(a_.token())) + ", stamped " + std::to_string(a_.stamps()) +
               ", observed " + std::to_string(value_of(a_.highest_observed_token())) + "\n";
        return out;
    }
    acquire_machine a_;
};

class round_interpreter final : public machine {
  public:
    explicit round_interpreter(command_line& line) : r_(line.number("nodes", 5)) {}

    std::string execute(command_line& line) override {
        if (line.verb == "round") return "send to" + nodes_in(r_.start()) + "\n";
        if (line.verb != "answered") throw std::invalid_argument("round does not know " + line.verb);
        const node_index node = line.node();
        node_reply r;
        r.status = status_of(line.text());
        r.value = line.number("renewals", 0);
        r.remaining = line.ms("left", 0);
        r.text = ids(line.text("holds", "")) + '\n' + ids(line.text("released", "")) + '\n';
        r.notified_waiters = static_cast<std::uint32_t>(line.number("notified", 0));
        r_.answered(node, r);
        constexpr std::array names{"pending", "yes", "lost", "uncounted", "exhausted", "kept", "no quorum"};
        return std::string(names.at(static_cast<std::size_t>(r_.outcome()))) + ": " + std::to_string(r_.yes()) +
               " did it, renewals " + std::to_string(r_.value()) + ", left " + in_ms(r_.remaining()) + ", holds " +
               std::to_string(r_.holds()) + ", notified " + std::to_string(r_.notified_waiters()) + "\n";
    }

  private:
    /// Returns hold ids, one for each letter a to f.
    static std::string ids(const std::string& letters) {
        std::string out;
        for (const char letter : letters)
            out += (out.empty() ? "" : ",") + std::string(hold_id::size, letter);
        return out;
    }
    majority_round r_;
};

class supervisor_interpreter final : public machine {
  public:
    explicit supervisor_interpreter(command_line& line) : s_(line.ms("max_ttl", 60'000)) {}

    std::string execute(command_line& line) override {
        if (line.verb == "supervisor") return state();
        if (line.verb == "after") {
            now_ += milliseconds{line.number()};
            return state();
        }
        if (line.verb == "connected") return describe(s_.connected());
        if (line.verb == "disconnected") return describe(s_.disconnected(line.rest()));
        if (line.verb == "identified") return describe(s_.identified(facts(line), now_));
        if (line.verb == "record") {
            node_record r;
            r.known = line.text("known", "yes") == "yes";
            r.latest_epoch = epoch{line.number("epoch", 0)};
            r.synced = line.text("synced", "no") == "yes";
            return describe(s_.record_found(r, now_));
        }
        if (line.verb == "drawn") return describe(s_.epoch_drawn(epoch{line.number()}));
        if (line.verb == "noted") return describe(s_.unsynced_noted());
        if (line.verb == "no_register") return describe(s_.register_failed(line.rest()));
        if (line.verb == "forgotten") return describe(s_.admission_deleted(line.rest()));
        if (line.verb == "readmitted") return describe(s_.readmit_answered(line.text() != "GONE"));
        if (line.verb == "readmit_refused") return describe(s_.readmit_refused(line.rest()));
        if (line.verb == "uninit") return describe(s_.found_not_admitted());
        if (line.verb == "refused") return describe(s_.commands_refused(line.rest()));
        throw std::invalid_argument("supervisor does not know " + line.verb);
    }

  private:
    static node_facts facts(command_line& line) {
        node_facts f;
        f.run_id = line.text("run", "");
        f.role = line.text("role", "master");
        f.maxmemory_policy = line.text("policy", "noeviction");
        f.cluster_mode = line.text("cluster", "no") == "yes";
        f.syncs_every_write = line.text("sync", "no") == "always";
        f.kept_unsynced = line.text("kept_unsynced", "yes") == "yes";
        f.admitted_run_id = line.text("admitted", "");
        f.marks = marks(line, "lost", "set", "evicted");
        f.admitted_marks = marks(line, "lost_then", "set_then", "evicted_then");
        f.claim = line.text("claim", "c1");
        f.admitted_epoch = epoch{line.number("epoch", 0)};
        f.duplicate_of = line.text("same_as", "");
        return f;
    }
    static command_marks marks(command_line& line, const char* lost, const char* set, const char* evicted) {
        command_marks m;
        m.lost = line.text(lost, "0") + " 0";
        m.text = m.lost + ' ' + line.text(set, "0");
        m.evicted = line.text(evicted, "0");
        return m;
    }
    std::string describe(const node_supervisor::step& s) {
        constexpr std::array names{"connect",
                                   "identify",
                                   "find what the register knows",
                                   "draw an epoch",
                                   "have the register record that its data may be incomplete",
                                   "forget",
                                   "copy the leases of the others",
                                   "readmit",
                                   "vote"};
        std::string out = names.at(static_cast<std::size_t>(s.next));
        if (s.next == node_supervisor::action::readmit) out += " with epoch " + std::to_string(value_of(s_.drawn()));
        if (s.delay > 0ms) out += " after " + in_ms(s.delay);
        return out + "\n" + state();
    }
    std::string state() const {
        std::string out = to_string(s_.state());
        if (s_.state() == node_state::quarantined) out += ", " + in_ms(s_.quarantine_left(now_)) + " left";
        if (s_.state() == node_state::voting) out += " under epoch " + std::to_string(value_of(s_.admitted_epoch()));
        if (!s_.detail().empty()) out += ": " + s_.detail();
        return out + "\n";
    }
    node_supervisor s_;
    monotonic_time now_{1h};
};

class queue_interpreter final : public machine {
  public:
    explicit queue_interpreter(command_line& line) : q_(limits(line)) {}

    std::string execute(command_line& line) override {
        if (line.verb == "queue") return state();
        if (line.verb == "join") {
            q_.join(line.number());
            return state();
        }
        if (line.verb == "leave") {
            const bool next = q_.leave(line.number());
            return (next ? "the next one tries at once\n" : "") + state();
        }
        if (line.verb == "refused") {
            const milliseconds left = line.ms("left", 0);
            return "sleep " + in_ms(q_.refused(left, line.number("chance", 0))) + "\n";
        }
        if (line.verb == "reported") {
            const node_index node = line.node();
            const nonce ended = nonce::from_bits(0, static_cast<std::uint64_t>(line.text("of", "a").front()));
            return "look in " + in_ms(q_.lease_ended(node, ended)) + "\n";
        }
        if (line.verb == "release") {
            if (q_.begin_hand_over()) return "hand over to " + std::to_string(q_.head()) + "\n";
            return "look in " + in_ms(q_.lease_released(line.text("others", "no") == "yes")) + "\n";
        }
        throw std::invalid_argument("queue does not know " + line.verb);
    }

  private:
    static wait_queue::limits limits(command_line& line) {
        const std::size_t quorum = line.number("quorum", 3);
        return {quorum, static_cast<std::uint32_t>(line.number("handoff_max", 16))};
    }
    std::string state() const {
        if (q_.empty()) return "nobody waits\n";
        return std::to_string(q_.size()) + " wait, head " + std::to_string(q_.head()) + "\n";
    }
    wait_queue q_;
};

std::unique_ptr<machine> make_machine(command_line& line) {
    if (line.verb == "acquire") return std::make_unique<acquire_interpreter>(line);
    if (line.verb == "round") return std::make_unique<round_interpreter>(line);
    if (line.verb == "supervisor") return std::make_unique<supervisor_interpreter>(line);
    if (line.verb == "queue") return std::make_unique<queue_interpreter>(line);
    return nullptr;
}

/// Returns the file with the machines' current output after each `----`.
std::string execute(std::istream& file) {
    std::string out, done;
    std::unique_ptr<machine> current;
    bool expected = false;  // between `----` and the next empty line
    for (std::string text; std::getline(file, text);) {
        if (expected && !text.empty()) continue;
        if (text.empty()) {
            expected = false;
            out += "\n";
        } else if (text == "----") {
            expected = true;
            out += "----\n" + std::exchange(done, {});
        } else if (text.starts_with('#')) {
            out += text + "\n";
        } else {
            out += text + "\n";
            command_line line(text);
            if (auto made = make_machine(line)) current = std::move(made);
            if (!current) throw std::invalid_argument("no machine yet: " + text);
            done += current->execute(line);
            line.check_no_rest();
        }
    }
    if (!done.empty()) throw std::invalid_argument("commands without a ---- behind them");
    return out;
}

std::vector<std::string> scenario_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(FENCEGATE_SOURCE_DIR "/tests/scenarios")) {
        if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

class scenario : public ::testing::TestWithParam<std::string> {};

TEST_P(scenario, result_equals_the_file) {
    const std::filesystem::path path =
        std::filesystem::path(FENCEGATE_SOURCE_DIR "/tests/scenarios") / (GetParam() + ".txt");
    std::ifstream file(path);
    std::stringstream written;
    written << file.rdbuf();
    const std::string now = execute(written);
    if (const char* rewrite = std::getenv("FENCEGATE_REWRITE_SCENARIOS"); rewrite && std::string(rewrite) == "1") {
        std::ofstream(path) << now;
        return;
    }
    EXPECT_EQ(now, written.str())
        << "if the change is intended, run with FENCEGATE_REWRITE_SCENARIOS=1 and review the diff";
}

INSTANTIATE_TEST_SUITE_P(file, scenario, ::testing::ValuesIn(scenario_names()),
                         [](const auto& file) { return file.param; });

TEST(scenarios, unknown_line_is_refused) {
    for (const char* text : {"acquired 0 ok 1\n----\n", "acquire nodes=3\nfrobnicate\n----\n",
                             "acquire nodes=3 colour=red\n----\n", "acquire nodes=3\nacquired 0 perhaps\n----\n",
                             "acquire nodes=3\nacquired 0 ok\n----\n", "acquire nodes=3\n"}) {
        std::istringstream file(text);
        EXPECT_ANY_THROW(execute(file)) << text;
    }
}

}  // namespace
}  // namespace lockcore
