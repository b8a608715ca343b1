#pragma once

namespace fencegate {

/// A key of Ed25519 for tests, in PEM.
inline constexpr const char* digest_key =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEII8AwlLjrM8fyY55A9qXmgU2V3eFShvDNfr2eRvIfsGP\n"
    "-----END PRIVATE KEY-----";
inline constexpr const char* digest_public_key =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA06cpqTNBb/kTJqtrUnd7cQMFhA425eqm6prOw9H2CzU=\n"
    "-----END PUBLIC KEY-----\n";

}  // namespace fencegate
