#include <sim/differential/two_servers.hpp>

#include <redis/node_requests.hpp>
#include <redis/resp.hpp>
#include <redis/script_set.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::redis::resp_command;
using kind = redis_reply::kind;

redis_reply convert(const redisReply* r) {
    redis_reply out;
    switch (r->type) {
        case REDIS_REPLY_STATUS:
            out.set(kind::status, text(r));
            break;
        case REDIS_REPLY_ERROR:
            out.set(kind::error, text(r));
            break;
        case REDIS_REPLY_STRING:
            out.set(kind::text, text(r));
            break;
        case REDIS_REPLY_INTEGER:
            out.set_number(r->integer);
            break;
        case REDIS_REPLY_ARRAY:
            out.type = kind::array;
            for (std::size_t i = 0; i < r->elements; ++i)
                out.elements.push_back(convert(r->element[i]));
            break;
        default:
            break;
    }
    return out;
}

/// Removes and returns the text up to a space, a tab or the end.
std::string take_word(std::string& text) {
    const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
    std::string word = text.substr(0, end);
    text.erase(0, std::min(end + 1, text.size()));
    return word;
}

/// Compares two words that are times in ms.
void compare_times(const std::string& here, const std::string& there, const std::string& last) {
    long a = 0, b = 0;
    std::from_chars(here.data(), here.data() + here.size(), a);
    std::from_chars(there.data(), there.data() + there.size(), b);
    ASSERT_EQ(here.empty(), there.empty()) << last;
    ASSERT_EQ(a < 0, b < 0) << last;
    ASSERT_TRUE(is_close(milliseconds{a}, milliseconds{b})) << last << here << " and " << there;
}

/// Compares two leases as they are stored. The fourth and fifth word are times: the ttl and the time held.
void compare_leases(std::string here, std::string there, const std::string& last) {
    if (there.starts_with("shared ") && here.starts_with("shared ")) {  // an index: 'shared ttl', then its holders
        const std::size_t begin = std::string_view("shared ").size();
        const auto take_ttl = [](std::string& text) {
            const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
            const std::string ttl = text.substr(begin, end - begin);
            text.erase(0, end);
            return ttl;
        };
        const std::string ttl_here = take_ttl(here), ttl_there = take_ttl(there);
        compare_times(ttl_here, ttl_there, last);
    }
    const bool is_lease = std::count(there.begin(), there.end(), '\n') >= 5;
    for (int word = 1; is_lease && word <= 5; ++word) {
        const std::string a = take_word(here), b = take_word(there);
        if (word < 4) {
            ASSERT_EQ(a, b) << last;
        } else {
            compare_times(a, b, last);
        }
    }
    ASSERT_EQ(here, there) << last;
}

std::string identify_command() {
    return resp_command()
        .arg("EVAL")
        .arg(lockcore::redis::identify_script().text)
        .arg(std::uint64_t{1})
        .arg("fg:node")
        .finish();
}

/// Returns an error without the place in the script, which the simulated server does not name.
std::string without_place(const std::string& error) {
    return error.substr(0, error.find(" script: "));
}

}  // namespace

two_servers::two_servers(std::uint16_t port) : real_(port), subscriber_(port) {
    ask_real(resp_command().arg("FLUSHALL").finish());
    ask_real(resp_command().arg("SCRIPT").arg("FLUSH").finish());
    ask_real(resp_command().arg("CONFIG").arg("SET").arg("appendfsync").arg("everysec").finish());
    subscriber_.ask(resp_command().arg("PSUBSCRIBE").arg("fg:wake:*").finish());
    simulated_.on_publish = [this](std::string_view channel, std::string_view message) {
        messages_.push_back(std::string(channel) + ' ' + std::string(message));
        return 1;
    };
    const std::string info = ask_real(resp_command().arg("INFO").finish()).text;
    simulated_.restart(std::string(lockcore::redis::find_info_field(info, "run_id")));
    // The real server has counted the commands of earlier tests.
    std::string marks = ask_real(identify_command()).elements[0].text;
    for (std::uint64_t n = lockcore::redis::parse_number(take_word(marks)); n > 0; --n)
        simulated_.count_call("flushall");
    take_word(marks);
    for (std::uint64_t n = lockcore::redis::parse_number(marks); n > 0; --n)
        simulated_.count_call("config|set");
}

redis_reply two_servers::ask_simulated(std::string_view resp) {
    simulated_.set_clock(
        std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()));
    redis_arguments command;
    parse_command(resp, command);
    return simulated_.execute(command);
}

redis_reply two_servers::ask_real(const std::string& resp) {
    return convert(real_.ask(resp).get());
}

void two_servers::ask(const std::string& resp) {
    last_ = resp.substr(resp.size() > 2'000 ? resp.size() - 400 : 0) + '\n';
    compare(ask_simulated(resp), ask_real(resp));
    compare_messages();
}

void two_servers::compare(const redis_reply& here, const redis_reply& there) const {
    ASSERT_EQ(here.type, there.type) << last_ << here.text << there.text;
    ASSERT_EQ(without_place(here.text), without_place(there.text)) << last_;
    ASSERT_EQ(here.number, there.number) << last_;
    ASSERT_EQ(here.elements.size(), there.elements.size()) << last_;
    for (std::size_t i = 0; i < here.elements.size(); ++i)
        compare(here.elements[i], there.elements[i]);
}

std::vector<std::string> two_servers::run_batch(command_kind kind, const std::vector<lockcore::batch_item>& items,
                                                const std::string& run, bool with_source) {
    // A node compares its marks once in each 10 ms, which the two clocks divide differently.
    ask(resp_command().arg("HDEL").arg("fg:node").arg("compared").finish());
    const std::string resp = lockcore::redis::format_batch(kind, items, run, with_source);
    last_ = resp.substr(resp.size() > 2'000 ? resp.size() - 1'000 : 0) + '\n';
    const redis_reply here = ask_simulated(resp), there = ask_real(resp);
    std::vector<std::string> out;
    if (there.type != kind::array || here.type != kind::array) {
        compare(here, there);
        out.push_back(there.text);
        return out;
    }
    EXPECT_EQ(here.elements.size(), there.elements.size()) << last_;
    for (std::size_t i = 0; i < std::min(here.elements.size(), there.elements.size()); ++i) {
        const bool several = items[i].target->call().resources.size() > 1;
        compare_answer(kind, several, here.elements[i].text, there.elements[i].text);
        out.push_back(there.elements[i].text);
    }
    compare_messages();
    return out;
}

/// Compares the answers to one command; the words that are times depend on the command.
void two_servers::compare_answer(command_kind kind, bool several, std::string here, std::string there) const {
    const std::string status = take_word(there);
    ASSERT_EQ(take_word(here), status) << last_ << here << there;
    const auto compare_time = [&] { compare_times(take_word(here), take_word(there), last_); };
    const auto compare_word = [&] { ASSERT_EQ(take_word(here), take_word(there)) << last_; };
    if (status == "1" && kind == command_kind::acquire) {
        compare_time();
        // Of leases that end at nearly the same time either server may report another one.
        if (several) return;
    } else if (status == "6" || (status == "0" && kind == command_kind::look)) {
        compare_time();
        return compare_leases(here, there, last_);
    } else if (status == "0" && kind == command_kind::inspect) {
        compare_time();
        compare_word();
        compare_time();
    } else if (status == "0" && (kind == command_kind::renew || kind == command_kind::hold)) {
        compare_word();
        compare_time();
    } else if (status == "0" && kind == command_kind::list) {  // in any order
        std::vector<std::string> names_here, names_there;
        while (!here.empty())
            names_here.push_back(take_word(here));
        while (!there.empty())
            names_there.push_back(take_word(there));
        std::sort(names_here.begin(), names_here.end());
        std::sort(names_there.begin(), names_there.end());
        ASSERT_EQ(names_here, names_there) << last_;
        return;
    }
    ASSERT_EQ(here, there) << last_;
}

void two_servers::compare_messages() {
    std::vector<std::string> there;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const auto message = subscriber_.next();  // pattern, channel, text
        there.push_back(text(message->element[2]) + ' ' + text(message->element[3]));
    }
    std::sort(messages_.begin(), messages_.end());
    std::sort(there.begin(), there.end());
    ASSERT_EQ(messages_, there) << last_;
    messages_.clear();
}

void two_servers::identify() {
    ask(identify_command());
    const std::string info = resp_command().arg("INFO").finish();
    const std::string here = ask_simulated(info).text, there = ask_real(info).text;
    for (const char* field : {"run_id", "role", "redis_mode", "cluster_enabled", "redis_version", "maxmemory_policy",
                              "evicted_keys", "aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled",
                              "aof_last_bgrewrite_status", "aof_last_write_status"})
        ASSERT_EQ(lockcore::redis::find_info_field(here, field), lockcore::redis::find_info_field(there, field))
            << field;
    for (const std::string_view setting : lockcore::redis::sync_settings)
        ask(resp_command().arg("CONFIG").arg("GET").arg(setting).finish());
    resp_command question;
    for (const std::string_view word : lockcore::redis::replay_question)
        question.arg(word);
    ask(question.finish());
}

void two_servers::read_page(const std::string& resp) {
    ask(resp_command().arg("HDEL").arg("fg:node").arg("compared").finish());
    last_ = resp.substr(resp.size() - 200) + '\n';
    const redis_reply here = ask_simulated(resp), there = ask_real(resp);
    if (here.type != kind::array || there.type != kind::array) return compare(here, there);
    ASSERT_EQ(here.elements.size(), there.elements.size()) << last_;
    compare(here.elements[0], there.elements[0]);
    compare(here.elements[1], there.elements[1]);
    for (std::size_t i = 2; i + 2 < here.elements.size(); i += 3) {
        std::size_t same = 2;
        while (same < there.elements.size() && there.elements[same].text != here.elements[i].text)
            same += 3;
        ASSERT_LT(same, there.elements.size()) << last_ << here.elements[i].text;
        compare_times(std::to_string(here.elements[i + 1].number), std::to_string(there.elements[same + 1].number),
                      last_);
        compare_leases(here.elements[i + 2].text, there.elements[same + 2].text, last_);
    }
}

void two_servers::compare_data() {
    resp_command c;
    c.arg("EVAL")
        .arg(
            "local out, keys = {}, redis.call('SCAN', '0', 'MATCH', 'fg:[lt]*', 'COUNT', '100000')[2] table.sort(keys) "
            "for i, key in ipairs(keys) do local type = redis.call('TYPE', key).ok "
            "local value = '' if type == 'string' then value = redis.call('GET', key) end "
            "out[i] = {key, type, value, redis.call('PTTL', key)} end "
            "if redis.call('TYPE', 'fg:node').ok == 'hash' then "
            "redis.call('HDEL', 'fg:node', 'compared') out[#out + 1] = redis.call('HMGET', 'fg:node', 'run', "
            "'base', 'claim', 'marks', 'evicted', 'sync', 'mark') end return out")
        .arg("0");
    const redis_reply here = ask_simulated(c.finish()), there = ask_real(c.finish());
    ASSERT_EQ(here.elements.size(), there.elements.size()) << last_ << here.text << there.text;
    for (std::size_t i = 0; i < here.elements.size(); ++i) {
        const auto &a = here.elements[i].elements, &b = there.elements[i].elements;
        if (a.size() != 4) {  // the fields of fg:node
            compare(here.elements[i], there.elements[i]);
            continue;
        }
        ASSERT_EQ(a[0].text, b[0].text) << last_;
        ASSERT_EQ(a[1].text, b[1].text) << last_;
        compare_leases(a[2].text, b[2].text, last_);
        compare_times(std::to_string(a[3].number), std::to_string(b[3].number), last_);
    }
}

std::string two_servers::node_field(std::string_view name) {
    redis_value* node = simulated_.data.find("fg:node", simulated_.now());
    const std::string* value = node ? node->find_field(name) : nullptr;
    return value ? *value : std::string();
}

std::string two_servers::lease(const lockcore::resource_name& name) {
    const redis_value* value = simulated_.data.find("fg:lease:" + name.str(), simulated_.now());
    return value ? value->text : std::string();
}

std::string two_servers::shared_lease(const lockcore::resource_name& name, std::uint32_t number) {
    const std::string prefix = "fg:lease:" + name.str() + '\t';
    std::vector<std::string> found;
    for (const auto& [key, value] : simulated_.data.keys()) {
        if (key.starts_with(prefix) && !value.text.empty()) found.push_back(value.text);
    }
    return found.empty() ? std::string() : found[number % found.size()];
}

std::string two_servers::version(const lockcore::resource_name& name) {
    std::string text = lease(name);
    take_word(text);
    const std::string stamp = take_word(text);
    const std::string base = node_field("base");
    return std::to_string(std::max(lockcore::redis::parse_number(stamp), lockcore::redis::parse_number(base)));
}

std::uint64_t two_servers::counter(const lockcore::resource_name& name) {
    const redis_value* value = simulated_.data.find("fg:token:" + std::to_string(name.bucket()), simulated_.now());
    return value ? lockcore::redis::parse_number(value->text) : 0;
}

std::string two_servers::marks() {
    const redis_reply record = ask_simulated(identify_command());
    return record.elements.empty() ? std::string() : record.elements[0].text;
}

}  // namespace sim
