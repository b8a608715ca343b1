// lease_ids, names, and what a hostile Redis node answers.
#include "text_readers.hpp"

#include "fuzz.hpp"

#include <lockcore/encoding.hpp>
#include <lockcore/hmac_sha256.hpp>
#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/epochs.hpp>
#include <proto/fast_readmission.hpp>
#include <proto/lease_id.hpp>
#include <proto/lease_record.hpp>
#include <redis/node_requests.hpp>
#include <redis/resp.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace fencegate::fuzz {
namespace {

using lockcore::redis::reply;
using lockcore::redis::reply_reader;
using namespace lockcore;

}  // namespace

// lease_id

namespace {

/// Returns base64url(claims) "." base64url(MAC).
std::string sign_text(std::string_view claims, const authenticator& mac) {
    std::string id;
    append_base64url(id, std::as_bytes(std::span(claims)));
    const auto signature = mac.sign(id);
    id += '.';
    append_base64url(id, signature);
    return id;
}

void check_claims(const lease_claims& claims, cell_id cell, const authenticator& mac) {
    require(!claims.resources.empty(), "a lease covers at least one resource");
    const std::string id = sign_lease_id(claims, cell, mac);
    const auto read = verify_lease_id(id, cell, mac);
    require(id.size() > lease_id_max_bytes || (read && *read == claims), "signed claims are read as they were");
}

}  // namespace

void check_lease_id(std::string_view input) {
    static const hmac_sha256 mac(std::string(32, 'k'));
    static const hmac_sha256 other(std::string(32, 'o'));
    for (const cell_id cell : {cell_id{0}, cell_id{1}}) {
        if (const auto claims = verify_lease_id(input, cell, mac)) check_claims(*claims, cell, mac);
    }

    std::string id = sign_text(input, mac);
    require(!verify_lease_id(id, 1, mac), "another cell's lease_id is refused");
    require(!verify_lease_id(id, 0, other), "another cluster's lease_id is refused");
    const auto claims = verify_lease_id(id, 0, mac);
    if (!claims) return;
    check_claims(*claims, 0, mac);
    check_claims(*claims, 65'535, mac);
    // A changed byte, its position chosen by the input.
    const std::size_t position = std::hash<std::string_view>()(input) % id.size();
    const char before = id[position];
    for (const char changed : {static_cast<char>(before ^ 1), static_cast<char>(before ^ 0x20), '.', '\0'}) {
        if (changed == before) continue;
        id[position] = changed;
        require(!verify_lease_id(id, 0, mac), "a lease_id with a changed byte is refused");
    }
}

// lease_record

namespace {

void check_record(std::string_view text) {
    auto record = lease_record::parse(text);
    if (!record) return;
    const std::string formatted = record->format();
    const auto again = lease_record::parse(formatted);
    require(again.has_value(), "a lease that was read can be written and read again");
    require(again->format() == formatted, "a lease that was written by this version is read as it was");
    require(again->token == record->token && again->stamp == record->stamp, "a lease keeps its token and its stamp");
    record->merge(*again);
    require(record->holds.count() <= text.size() / hold_id::size, "a lease has no more holds than its text");
    idempotency_digest wanted;
    wanted.text = std::string(text.substr(0, idempotency_digest::size));
    wanted.text.resize(idempotency_digest::size, '0');
    wanted.find_in(record->keys);
}

}  // namespace

void check_lease_record(std::string_view input) {
    if (input.empty()) return;
    const auto kind = static_cast<command_kind>(static_cast<unsigned char>(input.front()) % command_kinds);
    input.remove_prefix(1);
    const node_reply reply = parse_reply(kind, input);
    require(reply.status == reply_status::error || static_cast<unsigned>(reply.status) < script_statuses,
            "a reply has a status that scripts have");
    require(reply.text.size() <= input.size(), "a reply has no more text than was sent");
    check_record(reply.text);
    check_record(input);
    hold_view holds;
    holds.add(reply.text);
    hold_view again;
    again.add(holds.text());
    require(again.text() == holds.text(), "holds that were written are read as they were");
}

// redis_reply

namespace {

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

/// Gives the replies to the readers of the answers to each request,
/// as a connection does: with one reply for each command.
void parse_as_responses(std::span<const reply> replies) {
    const std::vector<node_request::any> requests{
        node_request::identify{},
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
        const std::size_t commands = redis::format_request(request).size();
        for (std::size_t at = 0; at + commands <= replies.size(); at += commands) {
            const auto response = redis::parse_response(request, replies.subspan(at, commands));
            const auto* page = std::get_if<node_response::lease_page>(&response);
            if (page != nullptr) check_page(*page);
        }
    }
}

}  // namespace

void check_redis_reply(std::string_view input) {
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

// resource_name

namespace {

/// Removes the first character of a text that is not empty. Out: its number;
/// 0 for a control character and for bytes that are no character.
std::uint32_t take_character(std::string_view& text) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t out = bytes == 1 ? first : first & (0xffU >> (bytes + 1));
    bool is_valid = (first < 0x80 || first >= 0xc0) && first < 0xf8 && text.size() >= bytes;
    for (const char c : text.substr(1, bytes - 1)) {
        is_valid = is_valid && (static_cast<unsigned char>(c) & 0xc0U) == 0x80;
        out = out << 6U | (static_cast<unsigned char>(c) & 0x3fU);
    }
    text.remove_prefix(std::min(bytes, text.size()));
    constexpr std::array<std::uint32_t, 5> lowest{0, 0, 0x80, 0x800, 0x10000};  // of so many bytes
    const bool is_surrogate = out >= 0xd800 && out < 0xe000;
    const bool is_control = out < 0x20 || (out >= 0x7f && out < 0xa0);
    return is_valid && out >= lowest[bytes] && out <= 0x10ffff && !is_surrogate && !is_control ? out : 0;
}

/// Returns whether a text is a name, by the words of docs/http-api.md and not by the code of the product.
bool is_name(std::string_view text) {
    bool is_good = !text.empty() && text.size() <= 200;
    char32_t previous = '/';
    while (!text.empty()) {
        const char32_t next = take_character(text);
        is_good = is_good && next != 0 && !(previous == '/' && next == '/');
        previous = next;
    }
    return is_good && previous != '/';
}

template <class Id>
void check_id(std::string_view text) {
    const auto id = Id::parse(text);
    const bool digits = text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    require(id.has_value() == (text.size() == Id::size && digits),
            "an id is a fixed number of lower-case hexadecimal digits");
    if (id) require(id->str() == text, "an id keeps its text");
}

void check_encodings(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    const std::string hex = lockcore::to_hex(bytes);
    std::string decoded(text.size(), '\0');
    require(lockcore::from_hex(hex, std::as_writable_bytes(std::span(decoded))) && decoded == text,
            "hexadecimal text is decoded to what was encoded");
    std::string base64;
    lockcore::append_base64url(base64, bytes);
    require(lockcore::from_base64url(base64) == text, "base64url is decoded to what was encoded");
    if (const auto other = lockcore::from_base64url(text))
        require(other->size() <= text.size(), "decoded base64url is not longer than its text");
}

}  // namespace

void check_resource_name(std::string_view input) {
    const auto name = lockcore::resource_name::parse(input);
    require(name.has_value() == is_name(input), "exactly the documented names are accepted");
    if (name) {
        require(name->str() == input, "a name keeps its text");
        require(name->bucket() < lockcore::buckets, "a name has one of the counters of a node");
    } else {
        require(!name.error().detail.empty(), "the failure says which rule is broken");
    }
    check_id<lockcore::nonce>(input);
    check_id<lockcore::hold_id>(input);
    check_encodings(input);
}

}  // namespace fencegate::fuzz
