//! The manual page for `man`: the program, then each of its commands.

use clap::Command;
use clap_mangen::Man;

/// Returns the manual page of a program, with its commands as sections.
///
/// # Errors
/// None in practice: the page is written to memory.
pub(crate) fn page(mut program: Command) -> std::io::Result<Vec<u8>> {
    program.build();
    let whole = Man::new(program.clone());
    let mut head = Vec::new();
    whole.render_title(&mut head)?;
    let mut page = String::from_utf8_lossy(&head).into_owned();
    let mut name = Vec::new();
    whole.render_name_section(&mut name)?;
    page.push_str(&part_of(&name));
    page.push_str(&sections(&whole)?);
    for command in program.get_subcommands() {
        let name = command.get_name().to_uppercase();
        let text = sections(&Man::new(command.clone()))?.replace(".SH ", ".SS ");
        page.push_str(&format!(".SH {name}\n{text}"));
    }
    Ok(page.into_bytes())
}

/// Returns the synopsis, the description and the options of a program or a command.
fn sections(program: &Man) -> std::io::Result<String> {
    let mut text = Vec::new();
    program.render_synopsis_section(&mut text)?;
    program.render_description_section(&mut text)?;
    program.render_options_section(&mut text)?;
    Ok(part_of(&text))
}

/// Returns a part of the page without the definition of the apostrophe, which the page needs only once, before its title.
fn part_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let is_text = |line: &&str| !line.starts_with(".ie ") && !line.starts_with(".el ");
    text.lines()
        .filter(is_text)
        .flat_map(|line| [line, "\n"])
        .collect()
}
