// Names, nonces, lease_ids, validity and configuration.
#include <lockcore/config.hpp>
#include <lockcore/encoding.hpp>
#include <lockcore/hmac_sha256.hpp>
#include <proto/lease_id.hpp>
#include <proto/lease_record.hpp>

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <utility>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

TEST(encoding, hex_is_lower_case_with_the_requested_length) {
    const std::array bytes{std::byte{0x00}, std::byte{0x0f}, std::byte{0xa5}, std::byte{0xff}};
    EXPECT_EQ(to_hex(bytes), "000fa5ff");
    EXPECT_EQ(to_hex({}), "");
    std::string digits(4, ' ');
    write_hex(0x123456789aULL, digits);
    EXPECT_EQ(digits, "789a");
}

TEST(encoding, from_hex_accepts_both_cases_and_nothing_else) {
    std::array<std::byte, 2> out{};
    EXPECT_TRUE(from_hex("0fA5", out));
    EXPECT_EQ(to_hex(out), "0fa5");
    for (const char* text : {"", "0fa", "0fa5f", "0fg5", "0x0f", " fa5", "+fa5"})
        EXPECT_FALSE(from_hex(text, out)) << text;
    EXPECT_TRUE(is_hex("09afAF") && is_lower_hex("09af"));
    EXPECT_FALSE(is_hex("0g") || is_lower_hex("AF") || is_lower_hex("0g"));
}

TEST(encoding, control_characters_are_below_space_and_delete) {
    for (int code = 0; code < 256; ++code)
        EXPECT_EQ(has_control_character(std::string("a") + static_cast<char>(code)), code < 32 || code == 127) << code;
    EXPECT_FALSE(has_control_character(""));
}

TEST(encoding, base64url_of_rfc_4648_without_padding) {
    const std::pair<std::string, std::string> pairs[] = {
        {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
        {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xfb\xff", "-_8"}};
    for (const auto& [bytes, text] : pairs) {
        std::string out = ">";
        append_base64url(out, std::as_bytes(std::span(bytes)));
        EXPECT_EQ(out, ">" + text);
        EXPECT_EQ(from_base64url(text), bytes);
    }
    for (const char* text : {"Zg==", "Zm+v", "Zm/v", "Zm 9", "Zm\n9"})
        EXPECT_EQ(from_base64url(text), std::nullopt) << text;
}

TEST(resource_name, accepts_what_the_contract_allows) {
    for (const char* text : {"a",
                             "inventory/sku-1",
                             "A.b_c:d@e/f-0",
                             "a b",
                             " ",
                             "ann+tag@example.com",
                             "#7",
                             "100%",
                             "a%2Fb",
                             "a*b?[c]",
                             "a{b}",
                             "a\\b",
                             "\"a\"",
                             "a,b",
                             "7~a",
                             "!a",
                             "ä/日本語",
                             "🛒",
                             "\u00a0",
                             "\u00a0\u2028",
                             "a\xed\x9f\xbf",
                             "\xee\x80\x80",
                             "\xf4\x8f\xbf\xbf",
                             "./.."})
        EXPECT_TRUE(resource_name::parse(text)) << text;
    EXPECT_TRUE(resource_name::parse(std::string(200, 'x')));
}

TEST(resource_name, refuses_what_the_contract_does_not_allow) {
    for (const char* text : {"", "/a", "a/", "a//b", "/", "a\n", "\tb", "\x7f", "a\u0080", "\u009fb", "ü\u0085", "\xff",
                             "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xc2", "\x80"})
        EXPECT_FALSE(resource_name::parse(text)) << text;
    EXPECT_FALSE(resource_name::parse(std::string("a\0b", 3)));
    EXPECT_FALSE(resource_name::parse(std::string(201, 'x')));
    EXPECT_FALSE(resource_name::parse(std::string(199, 'x') + "ü"));
}

TEST(resource_name, prefix_is_what_a_name_can_begin_with) {
    for (const char* text : {"", "a", "a/", "a b/ü", "*"})
        EXPECT_TRUE(resource_name::is_prefix(text)) << text;
    for (const std::string& text : {std::string("/"), std::string("/a"), std::string("a//"), std::string("a\n"),
                                    std::string("\xc3"), std::string(201, 'x')})
        EXPECT_FALSE(resource_name::is_prefix(text)) << text;
}

TEST(resource_name, bytes_of_several_are_added) {
    EXPECT_EQ(names_bytes({}), 0U);
    EXPECT_EQ(names_bytes({*resource_name::parse("ab"), *resource_name::parse("ü")}), 4U);
}

TEST(resource_name, hash_never_changes) {
    // Counters depend on it: a change would restart the tokens of every resource.
    EXPECT_EQ(resource_name::parse("a")->hash(), 0xaf63dc4c8601ec8cULL) << "the published test vector of FNV-1a";
    EXPECT_EQ(resource_name::parse("inventory/sku-1")->bucket(), 5106778000114901335ULL % 65536);
}

TEST(nonce, keeps_all_bits_through_text) {
    const nonce n = nonce::from_bits(0x0123456789abcdefULL, 0xfedcba9876543210ULL);
    EXPECT_EQ(n.str(), "0123456789abcdeffedcba9876543210");
    EXPECT_EQ(*nonce::parse(n.str()), n);
    EXPECT_FALSE(nonce::parse("0123"));
    EXPECT_FALSE(nonce::parse("0123456789ABCDEFfedcba9876543210"));
}

TEST(validity, leaves_one_percent_and_two_milliseconds_for_drift) {
    EXPECT_EQ(validity(10'000ms, 0ns), 9'898ms);
    EXPECT_EQ(validity(10'000ms, 4ms), 9'894ms);
    EXPECT_LE(validity(100ms, 97ms), 0us);
}

lease_claims some_claims() {
    lease_claims c;
    c.attempt_id = nonce::from_bits(1, 2);
    c.token = fencing_token{4294967301};
    c.resources = {*resource_name::parse("inventory/sku-1"), *resource_name::parse("orders/7")};
    c.holder = {"orders", "worker 7, \"night\" ü"};
    c.granted_at = wall_time{1'795'000'000'123ms};
    c.hold = hold_id::from_bits(77);
    c.may_be_shared = true;
    return c;
}

TEST(lease_id, opens_to_the_sealed_claims) {
    const hmac_sha256 mac(std::string(32, 'k'));
    const std::string id = sign_lease_id(some_claims(), 0, mac);
    EXPECT_EQ(id.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."),
              std::string::npos)
        << "fits a URL path";
    const auto opened = verify_lease_id(id, 0, mac);
    ASSERT_TRUE(opened);
    EXPECT_EQ(*opened, some_claims());
}

TEST(lease_id, keeps_any_names_apart) {
    const hmac_sha256 mac(std::string(32, 'k'));
    lease_claims claims = some_claims();
    claims.resources = {*resource_name::parse("a b"), *resource_name::parse("ä,c"), *resource_name::parse("d~e")};
    EXPECT_EQ(verify_lease_id(sign_lease_id(claims, 0, mac), 0, mac)->resources, claims.resources);
}

TEST(lease_id, shared_names_are_kept_apart) {
    const auto a = *resource_name::parse("a"), b = *resource_name::parse("b"), c = *resource_name::parse("c");
    using list = std::vector<resource_name>;
    for (const auto& [resources, shared] :
         std::vector<std::pair<list, list>>{{{a}, {b, c}}, {{a, b}, {c}}, {{}, {a}}, {{}, {a, b}}}) {
        const hmac_sha256 mac(std::string(32, 'k'));
        lease_claims claims = some_claims();
        claims.resources = resources;
        claims.shared = shared;
        const auto opened = verify_lease_id(sign_lease_id(claims, 0, mac), 0, mac);
        ASSERT_TRUE(opened);
        EXPECT_EQ(*opened, claims);
    }
}

TEST(lease_id, longest_is_within_its_limit) {
    const hmac_sha256 mac(std::string(32, 'k'));
    lease_claims claims = some_claims();
    claims.token = fencing_token{fencing_token_max};
    claims.resources.clear();
    for (std::size_t i = 0; i < resources_max; ++i)
        claims.resources.push_back(*resource_name::parse(std::string(names_bytes_max / resources_max, 'x')));
    claims.holder = {std::string(holder_bytes_max, 'p'), std::string(holder_bytes_max, 'o')};
    const std::string id = sign_lease_id(claims, 65'535, mac);
    EXPECT_LE(id.size(), lease_id_max_bytes);
    EXPECT_EQ(verify_lease_id(id, 65'535, mac)->resources, claims.resources);
}

TEST(lease_id, changed_character_is_refused) {
    const hmac_sha256 mac(std::string(32, 'k'));
    const std::string id = sign_lease_id(some_claims(), 0, mac);
    for (std::size_t i = 0; i < id.size(); ++i) {
        std::string forged = id;
        forged[i] = forged[i] == 'A' ? 'B' : 'A';
        EXPECT_FALSE(verify_lease_id(forged, 0, mac)) << "character " << i;
    }
    for (std::size_t n = 0; n < id.size(); ++n)
        EXPECT_FALSE(verify_lease_id(id.substr(0, n), 0, mac)) << "cut after " << n;
}

TEST(lease_id, flipped_bit_is_refused) {
    const hmac_sha256 mac(std::string(32, 'k'));
    const std::string id = sign_lease_id(some_claims(), 0, mac);
    for (std::size_t bit = 0; bit < id.size() * 8; ++bit) {
        std::string forged = id;
        forged[bit / 8] = static_cast<char>(forged[bit / 8] ^ 1 << bit % 8);
        EXPECT_FALSE(verify_lease_id(forged, 0, mac)) << "bit " << bit;
    }
}

TEST(lease_id, other_text_of_the_same_bytes_is_refused) {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const hmac_sha256 mac(std::string(32, 'k'));
    const std::string id = sign_lease_id(some_claims(), 0, mac);
    for (const std::size_t last : {id.find('.') - 1, id.size() - 1})
        for (const char other : alphabet) {
            std::string forged = id;
            forged[last] = other;
            EXPECT_EQ(verify_lease_id(forged, 0, mac).has_value(), forged == id) << last << other;
        }
    for (const char* end : {"=", "==", ".", "A", " ", "\n"})
        EXPECT_FALSE(verify_lease_id(id + end, 0, mac)) << end;
}

TEST(lease_id, differs_for_each_hold_of_a_lease) {
    const hmac_sha256 mac(std::string(32, 'k'));
    lease_claims other = some_claims();
    other.hold = hold_id::from_bits(78);
    EXPECT_NE(sign_lease_id(other, 0, mac), sign_lease_id(some_claims(), 0, mac));
    other.may_be_shared = false;
    EXPECT_EQ(*verify_lease_id(sign_lease_id(other, 0, mac), 0, mac), other);
}

TEST(lease_id, names_its_cell_in_front_except_cell_0) {
    const hmac_sha256 mac(std::string(32, 'k'));
    EXPECT_EQ(sign_lease_id(some_claims(), 0, mac).find('~'), std::string::npos) << "cell 0 has no mark";
    const std::string id = sign_lease_id(some_claims(), 65'535, mac);
    EXPECT_TRUE(id.starts_with("65535~"));
    const auto opened = verify_lease_id(id, 65'535, mac);
    ASSERT_TRUE(opened);
    EXPECT_EQ(*opened, some_claims());
}

TEST(lease_id, of_another_cell_is_refused_whatever_its_key) {
    const hmac_sha256 mine(std::string(32, 'k')), another(std::string(32, 'j'));
    for (const hmac_sha256* mac : {&mine, &another}) {
        const auto at_other = verify_lease_id(sign_lease_id(some_claims(), 2, *mac), 1, mine);
        ASSERT_FALSE(at_other);
        EXPECT_EQ(at_other.error().code, errc::other_cell);
        EXPECT_EQ(at_other.error().cell, 2);
        EXPECT_EQ(at_other.error().detail,
                  "The lease_id names cell 2; this gateway is of cell 1. Send the request to a gateway of cell 2.");
    }
    EXPECT_EQ(verify_lease_id(sign_lease_id(some_claims(), 0, mine), 1, mine).error().code, errc::other_cell);
    EXPECT_EQ(verify_lease_id(sign_lease_id(some_claims(), 1, mine), 0, mine).error().code, errc::other_cell);
}

TEST(lease_id, with_a_changed_cell_is_not_authentic) {
    const hmac_sha256 mac(std::string(32, 'k'));
    const std::string id = sign_lease_id(some_claims(), 2, mac), unmarked = id.substr(2);
    for (const auto& [text, cell] : {std::pair("1~" + unmarked, cell_id{1}), std::pair(unmarked, cell_id{0}),
                                     std::pair("02~" + unmarked, cell_id{2}), std::pair("2~" + id, cell_id{2}),
                                     std::pair("~" + unmarked, cell_id{0}), std::pair("65538~" + unmarked, cell_id{2})})
        EXPECT_EQ(verify_lease_id(text, cell, mac).error().code, errc::lease_not_authentic) << text;
}

/// Returns a lease_id of cell 0 with any text in it.
std::string sign_text(const authenticator& mac, const std::string& text) {
    std::string id;
    append_base64url(id, std::as_bytes(std::span(text)));
    const auto signature = mac.sign(id);
    append_base64url(id += '.', signature);
    return id;
}

// Only an issuer with the key signs such a text.
TEST(lease_id, signed_text_of_another_form_is_not_authentic) {
    const hmac_sha256 mac(std::string(32, 'k'));
    const std::string nonce(32, 'a'), hold(16, 'b');
    const auto text = [&](const std::string& format, const std::string& attempt, const std::string& numbers,
                          const std::string& names, const std::string& id) {
        return format + '\n' + attempt + '\n' + numbers + '\n' + names + '\n' + id + "\np\no";
    };
    ASSERT_TRUE(verify_lease_id(sign_text(mac, text("1", nonce, "7\n5", "a\tb", hold)), 0, mac));
    for (const std::string& other :
         {text("2", nonce, "7\n5", "a\tb", hold), text("", nonce, "7\n5", "a\tb", hold),
          text("1", std::string(31, 'a'), "7\n5", "a\tb", hold), text("1", nonce, "x\n5", "a\tb", hold),
          text("1", nonce, "7\nx", "a\tb", hold), text("1", nonce, "7\n-1", "a\tb", hold),
          text("1", nonce, "7\n9223372036854775807", "a\tb", hold), text("1", nonce, "7\n5", "a\t\t\tb", hold),
          text("1", nonce, "7\n5", "", hold), text("1", nonce, "7\n5", "a\tb", "b"), std::string("1"), std::string()})
        EXPECT_EQ(verify_lease_id(sign_text(mac, other), 0, mac).error().code, errc::lease_not_authentic) << other;
    const auto has_other_form = [&](const std::string& id) {
        return verify_lease_id(id, 0, mac).error().detail.starts_with("This text does not have the form");
    };
    EXPECT_TRUE(has_other_form("null"));
    EXPECT_TRUE(has_other_form(sign_text(mac, text("1", nonce, "7\n5", std::string(lease_id_max_bytes, 'a'), hold))))
        << "no more of it is read";
}

TEST(hold_id, keeps_all_bits_through_text) {
    const hold_id id = hold_id::from_bits(0xfedcba9876543210ULL);
    EXPECT_EQ(id.str(), "fedcba9876543210");
    EXPECT_EQ(*hold_id::parse(id.str()), id);
    for (const char* text : {"", "0123", "FEDCBA9876543210", "fedcba987654321g", "fedcba98765432100"})
        EXPECT_FALSE(hold_id::parse(text)) << text;
    EXPECT_EQ(hold_id::of_grant(nonce::from_bits(1, 0xfedcba9876543210ULL)), id);
}

TEST(lease_id, signed_with_another_key_is_refused) {
    const hmac_sha256 mine(std::string(32, 'k')), another(std::string(32, 'j'));
    EXPECT_FALSE(verify_lease_id(sign_lease_id(some_claims(), 0, another), 0, mine));
}

TEST(lease_id, counts_while_its_key_is_among_those_that_verify) {
    const std::string older(32, 'o'), newer(100, 'n');
    hmac_sha256 keys(older);
    const std::string by_older = sign_lease_id(some_claims(), 0, keys);
    keys.set_keys(older, {newer});
    EXPECT_EQ(sign_lease_id(some_claims(), 0, keys), by_older) << "a key that verifies does not sign";
    keys.set_keys(newer, {older});
    EXPECT_EQ(sign_lease_id(some_claims(), 0, keys), sign_lease_id(some_claims(), 0, hmac_sha256(newer)));
    EXPECT_TRUE(verify_lease_id(by_older, 0, keys));
    EXPECT_TRUE(verify_lease_id(sign_lease_id(some_claims(), 0, keys), 0, keys));
    keys.set_keys(newer, {});
    EXPECT_FALSE(verify_lease_id(by_older, 0, keys));
}

TEST(hmac_sha256, macs_are_those_of_rfc_4231) {
    const hmac_sha256 keys(std::string(131, '\xaa'));
    for (int repeat = 0; repeat < 3; ++repeat) {
        EXPECT_EQ(to_hex(keys.sign("Test Using Larger Than Block-Size Key - Hash Key First")),
                  "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
        EXPECT_EQ(
            to_hex(keys.sign("This is a test using a larger than block-size key and a larger than block-size data. "
                             "The key needs to be hashed before being used by the HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
    }
}

TEST(hmac_sha256, short_key_is_refused_and_changes_nothing) {
    EXPECT_THROW(hmac_sha256(std::string(31, 'k')), std::invalid_argument);
    hmac_sha256 keys(std::string(32, 'k'));
    EXPECT_THROW(keys.set_keys(std::string(31, 'k'), {}), std::invalid_argument);
    EXPECT_THROW(keys.set_keys(std::string(32, 'j'), {std::string(31, 'k')}), std::invalid_argument);
    EXPECT_EQ(keys.key_ids(), std::vector{hmac_sha256::id_of(std::string(32, 'k'))});
}

// As `select 'key-' || left(encode(sha256(outer_pad), 'hex'), 12)` gives it;
// 65 bytes are more than HMAC takes as they are.
TEST(hmac_sha256, ids_of_keys_are_those_of_the_database) {
    const hmac_sha256 keys(std::string(32, 'k'), {std::string(65, 'j')});
    EXPECT_EQ(keys.key_ids(), (std::vector<std::string>{"key-bb8564c3c6e0", "key-dded400aa206"}));
}

config config_of_five_nodes() {
    config c;
    for (int i = 1; i <= 5; ++i)
        c.nodes.push_back(
            {"node-" + std::to_string(i), "127.0.0.1", static_cast<std::uint16_t>(7000 + i), "", "", "", {}});
    return c;
}

TEST(config, with_five_nodes_and_defaults_has_no_fault) {
    EXPECT_TRUE(config_of_five_nodes().validate().empty());
}

TEST(config, names_the_setting_that_is_the_bound) {
    config c = config_of_five_nodes();
    c.node_timeout = 3s;
    c.max_ttl = 5s;
    c.max_hold = 4s;
    const std::vector<std::string> faults{
        "node_dead_after: 2000 ms is not between 3000 (node_timeout_ms) and 600000 ms",
        "default_ttl: 10000 ms is not between 100 and 5000 ms (max_ttl_ms)",
        "max_hold: 4000 ms is not between 5000 (max_ttl_ms) and 31536000000 ms"};
    EXPECT_EQ(c.validate(), faults);
}

TEST(config, names_every_fault_at_once) {
    config c = config_of_five_nodes();
    c.nodes.pop_back();
    c.nodes[1].name = c.nodes[0].name;
    c.nodes[3].port = c.nodes[2].port;
    c.max_ttl = 1ms;
    c.max_renewals = renewals_counted + 1;
    const auto faults = c.validate();
    const auto has = [&](std::string_view path) {
        return std::any_of(faults.begin(), faults.end(), [&](const auto& f) { return f.starts_with(path); });
    };
    EXPECT_TRUE(has("nodes: "));
    EXPECT_TRUE(has("nodes[1].name: "));
    EXPECT_TRUE(has("nodes[3].port: "));
    EXPECT_TRUE(has("max_ttl: "));
    EXPECT_TRUE(has("default_ttl: "));
    EXPECT_TRUE(has("max_renewals: "));
}

}  // namespace
}  // namespace lockcore
