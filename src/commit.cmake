# Writes ${OUT}: the commit that is being built, "-dirty" where files differ from it. Run at every build.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE reason RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit unknown)  # no git, an archive without its history, or a clone that belongs to somebody else
  if(NOT EXISTS ${OUT})  # the first build alone prints git's reason, or why git did not start
    string(REGEX REPLACE "\n.*" "" reason "${reason}")
    if(reason STREQUAL "")
      set(reason "git: ${failed}")
    endif()
    message("the program will name its commit \"unknown\": ${reason}")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define NORMSCOPE_COMMIT \"${commit}\"\n")  # touched only where it changes
