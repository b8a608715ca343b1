// The bytes that a hostile Redis node sends: RESP replies, and what the commands of the protocol read from them.
#include "fuzz.hpp"

#include <proto/foreign_times.hpp>
#include <proto/lease_merge.hpp>
#include <proto/lease_record.hpp>
#include <proto/plausible_epoch.hpp>
#include <redis/node_requests.hpp>
#include <redis/reply_reader.hpp>

#include <functional>
#include <string>
#include <vector>

namespace fencegate::fuzz {
namespace {

using namespace lockcore;
using lockcore::redis::reply;
using lockcore::redis::reply_reader;

struct reading {
    std::vector<std::string> rendered;
    std::vector<reply> replies;
    std::string error;
};

void render(const reply& r, std::string& out) {
    out += std::to_string(static_cast<int>(r.type)) + ':' + std::to_string(r.number) + ':' +
           std::to_string(r.text.size()) + ':' + r.text + '[';
    for (const reply& element : r.elements)
        render(element, out);
    out += ']';
}

std::size_t count_parts(const reply& r) {
    std::size_t count = 1;
    for (const reply& element : r.elements)
        count += count_parts(element);
    return count;
}

reading read(std::string_view bytes, const std::function<std::size_t(std::size_t position)>& size_of_piece) {
    reading out;
    reply_reader reader;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t size = std::min(size_of_piece(at), bytes.size() - at);
        reader.add(bytes.substr(at, size));
        at += size;
        while (const reply* complete = reader.next()) {
            require(count_parts(*complete) <= reply_reader::elements_max + 1,
                    "a reply has a bounded number of elements");
            render(*complete, out.rendered.emplace_back());
            out.replies.push_back(*complete);
        }
    }
    out.error = reader.error();
    return out;
}

class same_number final : public random_source {
  public:
    std::uint64_t next() override { return 7; }
};

/// Merges the leases of a page with themselves, as those of two nodes are merged for a third one that forgot.
void check_page(const node_response::lease_page& page) {
    static same_number random;
    lease_merge merge(random, 3, 2, milliseconds{60'000}, epoch{epochs_max - 1});
    for (const auto& lease : page.leases) {
        if (!merge.add(0, lease) || !merge.add(1, lease)) return;
    }
    for (const lease_copy& lease : merge.take(1'000)) {
        require(lease.remaining > milliseconds{0} && lease.remaining <= foreign_time_max + milliseconds{1},
                "a lease that is copied has a bounded time");
        require(lease_record::parse(lease.value).has_value(), "a lease that is copied can be read");
    }
}

/// Gives the replies to the readers of the answers to each request, as a connection does: with one reply for each command.
void parse_as_responses(std::span<const reply> replies) {
    const node_address address{.name = "a", .host = "h", .port = 1, .username = "u", .password = "p", .tls = {}};
    const std::vector<node_request::any> requests{
        node_request::identify{.first = true},
        node_request::identify{.first = false},
        node_request::write_claim{},
        node_request::load_scripts{{command_kind::acquire, command_kind::list}},
        node_request::readmit{},
        node_request::ping{},
        node_request::read_leases{},
        node_request::delete_admission{},
        node_request::announce{},
        node_request::mark{},
        node_request::install{}};
    for (const auto& request : requests) {
        const std::size_t commands = redis::format_request(request, address).size();
        for (std::size_t at = 0; at + commands <= replies.size(); at += commands) {
            const auto response = redis::parse_response(request, address, replies.subspan(at, commands));
            const auto* page = std::get_if<node_response::lease_page>(&response);
            if (page != nullptr) check_page(*page);
        }
    }
}

}  // namespace

void run_input(std::string_view input) {
    const reading whole = read(input, [&](std::size_t) { return input.size(); });
    const reading by_byte = read(input, [](std::size_t) { return std::size_t{1}; });
    const reading in_pieces =
        read(input, [&](std::size_t at) { return 1 + static_cast<unsigned char>(input[at]) % 13U; });
    require(whole.rendered == by_byte.rendered && whole.rendered == in_pieces.rendered,
            "replies are the same whichever way the bytes arrive");
    require(whole.error.empty() == by_byte.error.empty(), "an error is found whichever way the bytes arrive");
    parse_as_responses(whole.replies);
    for (const reply& answer : whole.replies) {
        if (const auto end = redis::parse_lease_end(answer))
            require(!end->resource.empty() && end->resource.size() < answer.elements[2].text.size(),
                    "a message names the resource after the lease");
        for (std::size_t kind = 0; kind < command_kinds; ++kind) {
            const auto batch = redis::parse_batch(static_cast<command_kind>(kind), answer);
            require(batch.error.empty() == (answer.type == reply::kind::array) || answer.is_error(),
                    "an answer is a list or an error");
            require(batch.replies.size() <= answer.elements.size(), "there are no more replies than elements");
        }
    }
}

}  // namespace fencegate::fuzz
