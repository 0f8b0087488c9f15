# Writes ${OUT}: the commit that is being built, "-dirty" where files differ from it. Run at every build.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit unknown)  # no git, or an archive without its history
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define NORMSCOPE_COMMIT \"${commit}\"\n")  # touched only where it changes
