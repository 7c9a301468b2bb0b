//! The page for `man`: the program, then each of its commands.

use clap::Command;
use clap_mangen::Man;

/// Returns the page of a program, with those of its commands as sections of it.
///
/// # Errors
/// None but those of memory that is written to.
pub(crate) fn page(mut program: Command) -> std::io::Result<Vec<u8>> {
    program.build();
    let mut page = Vec::new();
    let whole = Man::new(program.clone());
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    whole.render_synopsis_section(&mut page)?;
    whole.render_description_section(&mut page)?;
    whole.render_options_section(&mut page)?;
    for command in program.get_subcommands() {
        let name = command.get_name().to_owned();
        let part = Man::new(command.clone());
        let mut text = Vec::new();
        part.render_synopsis_section(&mut text)?;
        part.render_description_section(&mut text)?;
        part.render_options_section(&mut text)?;
        let text = String::from_utf8_lossy(&text).replace(".SH ", ".SS ");
        page.extend(format!(".SH {}\n{text}", name.to_uppercase()).bytes());
    }
    Ok(page)
}
