# Installs what belongs to the installed program: bill of materials, manual pages, completions, units, configuration,
# examples. It runs at the installation, because most of it is made from the installed program,
# and because `cmake --install --prefix` and DESTDIR decide where all of it is.
# In: PACKAGE, fencegate or fencegate-client; BUILD, the build folder; BINDIR, DATADIR, MANDIR and SYSCONFDIR of
# GNUInstallDirs, relative to the prefix.
set(CONFIG "${CMAKE_CURRENT_LIST_DIR}")
set(BIN "${CMAKE_INSTALL_PREFIX}/${BINDIR}")
set(SHARE "${CMAKE_INSTALL_PREFIX}/${DATADIR}")
set(DOCUMENTS "${SHARE}/doc/${PACKAGE}")
cmake_path(ABSOLUTE_PATH SYSCONFDIR BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE ETC)
set(UNITS "${CMAKE_INSTALL_PREFIX}/lib/systemd/system")
set(ZSH "${SHARE}/zsh/site-functions")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr") # the places of packages
  set(ETC /etc)
  set(ZSH "${SHARE}/zsh/vendor-completions")
  execute_process(COMMAND pkg-config --variable=systemdsystemunitdir systemd
    OUTPUT_VARIABLE KNOWN_UNITS OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(KNOWN_UNITS)
    set(UNITS "${KNOWN_UNITS}")
  endif()
endif()
# DESTDIR is empty, or where a package is put together; file(INSTALL) adds it by itself.
set(PROGRAM "$ENV{DESTDIR}${BIN}/fencegate")
set(MADE "${BUILD}/install")
file(REMOVE_RECURSE "${MADE}")
file(MAKE_DIRECTORY "${MADE}")

function(make_file name)
  execute_process(COMMAND ${ARGN} OUTPUT_FILE "${MADE}/${name}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

make_file(fencegate.spdx.json "${CONFIG}/make-sbom" "${PROGRAM}")
file(INSTALL "${MADE}/fencegate.spdx.json" "${CONFIG}/../CHANGELOG.md" DESTINATION "${DOCUMENTS}")
execute_process(COMMAND "${CONFIG}/make-man-pages" "${PROGRAM}" "${MADE}" COMMAND_ERROR_IS_FATAL ANY)
file(INSTALL "${MADE}/fencegate.1" DESTINATION "${CMAKE_INSTALL_PREFIX}/${MANDIR}/man1")

make_file(completion.bash "${PROGRAM}" completion bash)
make_file(completion.zsh "${PROGRAM}" completion zsh)
make_file(completion.fish "${PROGRAM}" completion fish)
file(INSTALL "${MADE}/completion.bash" DESTINATION "${SHARE}/bash-completion/completions" RENAME fencegate)
file(INSTALL "${MADE}/completion.zsh" DESTINATION "${ZSH}" RENAME _fencegate)
file(INSTALL "${MADE}/completion.fish" DESTINATION "${SHARE}/fish/vendor_completions.d" RENAME fencegate.fish)

if(PACKAGE STREQUAL "fencegate-client")
  return()
endif()

file(INSTALL "${MADE}/fencegate.yaml.5" DESTINATION "${CMAKE_INSTALL_PREFIX}/${MANDIR}/man5")
file(INSTALL "${CONFIG}/redis-node.conf" "${CONFIG}/prometheus" "${CONFIG}/grafana" DESTINATION "${DOCUMENTS}/examples"
  PATTERN "*.test.yml" EXCLUDE)

# The template has the name of its configuration and a title from the part of its name after @.
set(CONFIGURATION fencegate)
configure_file("${CONFIG}/systemd/fencegate.service.in" "${MADE}/fencegate.service" @ONLY)
set(CONFIGURATION %i)
set(TITLE " %i")
configure_file("${CONFIG}/systemd/fencegate.service.in" "${MADE}/fencegate@.service" @ONLY)
file(INSTALL "${MADE}/fencegate.service" "${MADE}/fencegate@.service" DESTINATION "${UNITS}")
file(INSTALL "${CONFIG}/systemd/sysusers.conf" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/sysusers.d"
  RENAME fencegate.conf)
file(INSTALL "${CONFIG}/systemd/tmpfiles.conf" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/tmpfiles.d"
  RENAME fencegate.conf)
file(INSTALL "${CONFIG}/logrotate.conf" DESTINATION "${ETC}/logrotate.d" RENAME fencegate)
# It may get passwords: readable by its owner, and by the group that the package gives it.
# One that is there has the operator's changes.
if(NOT EXISTS "$ENV{DESTDIR}${ETC}/fencegate/fencegate.yaml")
  file(INSTALL "${CONFIG}/fencegate.yaml" DESTINATION "${ETC}/fencegate" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ)
endif()
